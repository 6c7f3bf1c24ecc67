"""What an answer of llama.cpp's server says of its request: names, usage, timings, settings."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.emulate.model.sequence import Sequence
from harness.emulate.wires.llamacpp.order import LlamaOrder
from harness.emulate.wires.openai.answer import word

BUILD = "b11434-emulated"
_SHORTEST_MS = 0.001  # what the server writes for an answer of one token


@dataclass(slots=True, kw_only=True)
class Told:
    """What an answer says of its request. `task`: its number. `settings`: its sampling.

    `length`: tokens of the answer; `stop_type`: `eos` or `limit`. `is_truncated`: the context
    ended it. `speed`: times are divided by it. `sequence`: who plays it, once it is taken.
    """

    order: LlamaOrder
    task: int
    id: str
    created: int
    model: str
    prompt_tokens: int
    length: int
    stop_type: str
    is_truncated: bool
    settings: Mapping[str, Any]
    speed: float
    closes: bool
    sequence: Sequence = field(default_factory=lambda: Sequence(prompt_tokens=1, output_tokens=1))

    @property
    def finish_reason(self) -> str:
        """OpenAI's word for the end."""
        return "stop" if self.stop_type == "eos" else "length"

    def text(self, k: int) -> str:
        """The text of token `k`; that of the token which ends an answer by itself is empty."""
        return "" if self.stop_type == "eos" and k == self.length - 1 else word(k)

    def usage(self, tokens: int, cached_tokens: int) -> dict[str, Any]:
        """OpenAI's usage."""
        return {
            "completion_tokens": tokens,
            "prompt_tokens": self.prompt_tokens,
            "total_tokens": self.prompt_tokens + tokens,
            "prompt_tokens_details": {"cached_tokens": cached_tokens},
        }

    def timings(self, tokens: int, cached_tokens: int) -> dict[str, Any]:
        """Prompt: from the slot's start to the first token; the answer: from there to its last."""
        one, read = self.sequence, self.prompt_tokens - cached_tokens
        prompt_ms = (one.first_s - one.begun_s) / self.speed * 1e3
        answer_ms = max((one.last_s - one.first_s) / self.speed * 1e3, _SHORTEST_MS)
        gaps = tokens - 1
        return {
            "cache_n": cached_tokens,
            "prompt_n": read,
            "prompt_ms": prompt_ms,
            "prompt_per_token_ms": prompt_ms / read if read else 0.0,
            "prompt_per_second": read / prompt_ms * 1e3 if prompt_ms else 0.0,
            "predicted_n": tokens,
            "predicted_ms": answer_ms,
            "predicted_per_token_ms": answer_ms / gaps if gaps else 0.0,
            "predicted_per_second": gaps / answer_ms * 1e3,
        }

    def named(self, kind: str) -> dict[str, Any]:
        """What names an answer on OpenAI's routes."""
        return {
            "created": self.created,
            "id": self.id,
            "model": self.model,
            "system_fingerprint": BUILD,
            "object": kind,
        }

    def native(self, tokens: int, cached_tokens: int, content: str) -> dict[str, Any]:
        """The last event of a native stream, or a whole native answer."""
        prompt = self.order.prompt
        return {
            "index": 0,
            "content": content,
            "tokens": [],
            "id_slot": self.sequence.slot if self.sequence.slot is not None else -1,
            "stop": True,
            "model": self.model,
            "tokens_predicted": tokens,
            "tokens_evaluated": self.prompt_tokens,
            "generation_settings": dict(self.settings),
            "prompt": prompt if isinstance(prompt, str) else "".join(map(word, prompt)),
            "has_new_line": False,
            "truncated": self.is_truncated,
            "stop_type": self.stop_type,
            "stopping_word": "",
            "tokens_cached": self.prompt_tokens + tokens - 1,
            "timings": self.timings(tokens, cached_tokens),
        }
