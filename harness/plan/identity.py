"""What makes a plan what it is, as JSON, and its hash."""

import hashlib
from dataclasses import asdict
from typing import Any

import msgspec

from harness.config import LevelConf, RunConf
from harness.plan.tokenizer import Tokenizer
from scenarios.corpus import LANGUAGES, corpus_sha256, opening_words, pieces

GENERATOR_VERSION = 1  # raise when the same inputs would give other requests or due times


def plan_facts(conf: RunConf, tokenizer: Tokenizer, seed: str) -> dict[str, Any]:
    """The inputs of every request and due time of a run, JSON-able.

    Labels (names, summaries), the engine and its settings are left out: they move no request.
    """
    scenario = conf.scenario
    return {
        "generator_version": GENERATOR_VERSION,
        "corpus_sha256": corpus_sha256(),
        "seed": seed,
        "scenario": {
            "input_tokens": scenario.input_tokens,
            "input_tokens_min": scenario.input_tokens_min,
            "output_tokens": scenario.output_tokens,
            "output_tokens_min": scenario.output_tokens_min,
            "languages": list(scenario.languages),
        },
        "load": [_level_facts(level) for level in conf.load.played_levels()],
        "tokenizer": {
            "name": tokenizer.name,
            "exact": tokenizer.exact,
            "sha256": tokenizer.sha256,
            "corpus_counts_sha256": corpus_counts_sha256(tokenizer),
        },
        "sampling": {"temperature": 0.0, "seed": "a stream for each request"},
    }


def _level_facts(level: LevelConf) -> dict[str, Any]:
    return {**asdict(level), "shape": level.shape.value}


def corpus_counts_sha256(tokenizer: Tokenizer) -> str:
    """What a tokenizer does to the corpus: all that a plan takes from it.

    Equal for two files of one vocabulary (a GGUF and the tokenizer.json beside other weights of
    the same model), so that their plans are equal too.
    """
    texts = [piece for name in LANGUAGES for piece in pieces(name)]
    texts += [word for name in LANGUAGES for word in opening_words(name)]
    return hashlib.sha256(repr(tokenizer.count_batch(texts)).encode()).hexdigest()


def plan_sha256(facts: dict[str, Any]) -> str:
    """The hash of a plan: over its facts, but for where the tokenizer came from."""
    tokenizer = facts["tokenizer"]
    hashed = {
        **facts,
        "tokenizer": {key: tokenizer[key] for key in ("exact", "corpus_counts_sha256")},
    }
    return hashlib.sha256(msgspec.json.encode(hashed, order="sorted")).hexdigest()
