"""Which group of a mixture request *i* is of, and which LoRA adapter it names."""

from harness.config import GroupConf, ScenarioConf
from harness.errors import ConfigError
from scenarios.streams import draw, stream
from scenarios.wanted import Wanted


class Groups:
    """The groups of a scenario under one seed; requests of one session are all of one group.

    Raises:
        ConfigError: a group's prompts are too short for the scenario's shared beginning.
    """

    def __init__(self, conf: ScenarioConf, seed: str) -> None:
        self._groups = {group.name: group for group in conf.groups}
        self._lora = tuple(conf.lora)
        self._seed = seed
        for number, group in enumerate(conf.groups):
            tokens = group.input_tokens
            if tokens is not None and tokens <= conf.prefix_tokens:
                raise ConfigError(
                    f"scenario.groups[{number}].input_tokens={tokens}: must be above "
                    f"scenario.prefix_tokens={conf.prefix_tokens}, which is part of every prompt"
                )

    def group(self, wanted: Wanted) -> GroupConf | None:
        """The group that is wanted, else one drawn by its share; None if there are none.

        Raises:
            ConfigError: the group that is wanted is not there.
        """
        if wanted.group is not None and wanted.group not in self._groups:
            known = ", ".join(self._groups) or "none"
            raise ConfigError(
                f"load.group_users.{wanted.group}: not a group of the scenario; its groups: {known}"
            )
        if wanted.group is not None:
            return self._groups[wanted.group]
        if not self._groups:
            return None
        return self._by_share(stream(self._seed, *self._place("group", wanted)).random())

    def _by_share(self, place: float) -> GroupConf:
        groups = [group for group in self._groups.values() if group.share > 0]
        left = place * sum(group.share for group in groups)
        for group in groups[:-1]:
            left -= group.share
            if left < 0:
                return group
        return groups[-1]

    def lora(self, wanted: Wanted) -> str | None:
        """One of the scenario's adapters, each equally likely; None if there are none."""
        if not self._lora:
            return None
        return draw(stream(self._seed, *self._place("lora", wanted)), self._lora)

    def _place(self, purpose: str, wanted: Wanted) -> tuple[str, int]:
        """The stream of a request, or of the session that it is a turn of."""
        if wanted.session is None:
            return purpose, wanted.index
        return f"{purpose}:session", wanted.session
