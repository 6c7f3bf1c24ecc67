"""What makes a plan what it is, as JSON, and its hash."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from harness.config import Lengths, RunConf, ScenarioConf, Shape
from harness.plan.level_identity import digest, level_ends, plan_seed
from harness.plan.tokenizer import Tokenizer
from scenarios.corpus import LANGUAGES, corpus_sha256, opening_words, pieces
from scenarios.length_tables import length_table
from scenarios.prompt_file import read_prompts

GENERATOR_VERSION = 2  # raise when the same inputs would give other requests or due times
_LABELS = ("name", "summary", "measures", "length_source", "prompts_file")


def plan_facts(
    conf: RunConf, tokenizer: Tokenizer, identities: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """The inputs of every request and due time of a run, JSON-able.

    Labels (names, summaries, where a file lies), the engine and its settings are left out: they
    move no request. `identities`: of the load's levels, in order; none of a search, whose levels
    are found while it runs.

    Raises:
        ConfigError: a file of the scenario cannot be read.
    """
    return {
        "generator_version": GENERATOR_VERSION,
        "corpus_sha256": corpus_sha256(),
        "seed": plan_seed(conf),
        "scenario": _scenario_facts(conf.scenario),
        "load": _load_facts(conf, identities),
        "tokenizer": {
            "name": tokenizer.name,
            "exact": tokenizer.exact,
            "sha256": tokenizer.sha256,
            "corpus_counts_sha256": corpus_counts_sha256(tokenizer),
        },
        "sampling": {"temperature": 0.0, "seed": "a stream for each request"},
    }


def _load_facts(conf: RunConf, identities: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    if conf.load.shape is Shape.SEARCH:
        search = {k: v for k, v in asdict(conf.load.search).items() if k != "confirms"}
        return [{"shape": "search", "burstiness": conf.load.burstiness, **search}]
    levels = conf.load.played_levels()
    return [
        {**identity, **level_ends(level)}
        for level, identity in zip(levels, identities, strict=True)
    ]


def _scenario_facts(scenario: ScenarioConf) -> dict[str, Any]:
    facts = {key: value for key, value in asdict(scenario).items() if key not in _LABELS}
    facts["lengths"] = scenario.lengths.value
    if scenario.lengths is not Lengths.LOGNORMAL:
        del facts["lognormal"]
    if scenario.lengths is Lengths.EMPIRICAL:
        table = length_table(scenario.length_source)
        lengths = (tuple(table.input_tokens), tuple(table.output_tokens))
        facts["length_table_sha256"] = hashlib.sha256(repr(lengths).encode()).hexdigest()
    if scenario.prompts_file:
        facts["prompts_file_sha256"] = read_prompts(scenario.prompts_file).sha256
    return facts


def corpus_counts_sha256(tokenizer: Tokenizer) -> str:
    """What a tokenizer does to the corpus: all that a plan takes from it.

    Equal for two files of one vocabulary (a GGUF and the tokenizer.json beside other weights of
    the same model), so that their plans are equal too.
    """
    texts = [piece for name in LANGUAGES for piece in pieces(name)]
    texts += [word for name in LANGUAGES for word in opening_words(name)]
    return hashlib.sha256(repr(tokenizer.count_batch(texts)).encode()).hexdigest()


def plan_sha256(facts: Mapping[str, Any]) -> str:
    """The hash of a plan: over its facts, but for where the tokenizer came from."""
    return digest(_hashed(facts))


def level_sha256(facts: Mapping[str, Any], identity: Mapping[str, Any]) -> str:
    """The hash of what makes a level's requests and due times, however many are played.

    Where it is equal for levels of two plans, the shorter one's requests are the first ones of
    the longer one.
    """
    hashed = _hashed(facts)
    del hashed["load"]
    return digest({**hashed, "level": identity})


def _hashed(facts: Mapping[str, Any]) -> dict[str, Any]:
    tokenizer = facts["tokenizer"]
    kept = {key: tokenizer[key] for key in ("exact", "corpus_counts_sha256")}
    return {**facts, "tokenizer": kept}
