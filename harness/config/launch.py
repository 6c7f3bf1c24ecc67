"""How an engine comes to run: started by us, in a container, already there, or played."""

from dataclasses import dataclass, field

from harness.config.checks import Word, require
from harness.config.emulate import EmulateConf
from harness.errors import ConfigError

_LAST_PORT = 65535


class LaunchMode(Word):
    """How an engine comes to run.

    PROCESS: we start it from its environment. DOCKER: we start its container image. ATTACH: it
    runs already. EMULATE: a stand-in that speaks its wire; what it gives is never evidence.
    """

    PROCESS = "process"
    DOCKER = "docker"
    ATTACH = "attach"
    EMULATE = "emulate"


@dataclass
class LaunchConf:
    """`process`, `docker`: we start the engine. `attach`: `base_url` of one that runs already.

    A slash or `/v1` at the end of `base_url` is taken off: the adapter knows its paths.
    `api_key_env`: the name of the environment variable that holds the server's key; the key
    itself is never written anywhere. `tls_verify`: false takes any certificate.
    `emulate`: what the engine is like that `launch=emulate` plays; None in a run of another mode.
    """

    mode: LaunchMode = LaunchMode.PROCESS
    base_url: str | None = None
    port: int | None = None
    allow_remote: bool = False
    api_key_env: str = ""
    tls_verify: bool = True
    emulate: EmulateConf | None = field(default_factory=EmulateConf)

    def __post_init__(self) -> None:
        if self.mode is LaunchMode.ATTACH:
            url = self.base_url
            if not url:
                raise ConfigError(
                    "launch.base_url: not given; say where the server runs: "
                    "launch=attach launch.base_url=http://127.0.0.1:8000"
                )
            good = url.startswith(("http://", "https://"))
            require(good, "launch.base_url", url, "http://HOST:PORT or https://HOST:PORT")
            self.base_url = url.rstrip("/").removesuffix("/v1").rstrip("/")
        elif self.base_url:
            raise ConfigError(f"launch.base_url={self.base_url}: only with launch=attach")
        if self.mode is LaunchMode.EMULATE:
            self.emulate = self.emulate or EmulateConf()
        elif self.emulate not in (None, EmulateConf()):
            raise ConfigError("launch.emulate: is given; only with launch=emulate")
        is_name = not self.api_key_env or self.api_key_env.isidentifier()
        allowed = "the name of an environment variable, not the key itself"
        require(is_name, "launch.api_key_env", "(not shown)", allowed)
        port_ok = self.port is None or 1 <= self.port <= _LAST_PORT
        require(port_ok, "launch.port", self.port, "between 1 and 65535, or null for a free one")
