"""How `launch=emulate` starts the stand-in for a run's engine."""

import sys
from dataclasses import replace

from harness.adapter import ServeContext, ServeSpec
from harness.config import EmulateConf, EngineConf, RunConf
from harness.emulate.engines import played, wire_class
from harness.emulate.options import written_options
from harness.errors import ConfigError

_SAME = {  # our knob: the engine's own word for it
    "chunked_prefill": "chunked_prefill",
    "slots": "max_running",
    "max_model_len_tokens": "max_model_len",
    "tokens_per_step": "tokens_per_step",
}


def emulate_spec(conf: RunConf, ctx: ServeContext) -> ServeSpec:
    """The command that serves this run's engine, emulated, on the port of `ctx`.

    ConfigError for an engine that cannot be emulated, for a setting that is given twice, and for
    knobs that its wire refuses.
    """
    wire = wire_class(conf.engine.name)
    knobs = effective(conf.launch.emulate or EmulateConf(), conf.engine)
    hub = [conf.model.repo] if conf.model.repo else []  # some engines call their model so
    names = [conf.model.served_name or conf.model.name, *hub, *conf.scenario.lora]
    wire(played(knobs, wire), tuple(names))
    argv = [sys.executable, "-m", "harness.emulate", conf.engine.name]
    argv += ["--host", ctx.host, "--port", str(ctx.port), "--served-names", *names]
    host = f"[{ctx.host}]" if ":" in ctx.host else ctx.host
    return ServeSpec(
        argv=(*argv, *written_options(knobs)),
        base_url=f"http://{host}:{ctx.port}",
        ready_timeout_s=conf.engine.ready_timeout_s,
        stop_timeout_s=conf.engine.stop_timeout_s,
    )


def effective(emulate: EmulateConf, engine: EngineConf) -> EmulateConf:
    """The knobs with the engine's settings in the place of those that are not given."""
    default = EmulateConf()
    said = {knob: (word, getattr(engine, word)) for knob, word in _SAME.items()}
    if engine.kv_tokens is not None:
        blocks = max(1, engine.kv_tokens // emulate.block_tokens)
        said["kv_blocks"] = ("kv_tokens", blocks)
    taken: dict[str, object] = {}
    for knob, (word, theirs) in said.items():
        ours = getattr(emulate, knob)
        if theirs is None:
            continue
        if ours not in {getattr(default, knob), theirs}:
            raise ConfigError(
                f"launch.emulate.{knob}={ours}: but engine.{word}={getattr(engine, word)}; give "
                "one of them"
            )
        taken[knob] = theirs
    if emulate.prefix_cache is None:
        taken["prefix_cache"] = engine.prefix_cache
    return replace(emulate, **taken)  # type: ignore[arg-type]
