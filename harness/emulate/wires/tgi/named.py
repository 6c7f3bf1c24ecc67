"""What emulated TGI's answers are made of: tokens, texts, and the events of the OpenAI routes.

In the form of text-generation-inference 3.3.7 by its sources (docs/openapi.json, router/src/chat.rs
and router/src/server.rs), never captured: the id empty, the role in every delta.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.emulate.wires.openai.answer import word
from harness.emulate.wires.prompt import CHARACTERS_A_TOKEN
from harness.emulate.wires.tgi.order import Form, Order

EOS = "eos_token"
LOGPROB = -0.125
_EOS_ID, _EOS_TEXT = 2, "</s>"
_FIRST_ID = 3


def word_token(k: int) -> dict[str, Any]:
    """Token `k` of an answer."""
    return {"id": _FIRST_ID + k, "text": word(k), "logprob": LOGPROB, "special": False}


def prompt_tokens_of(text: str) -> list[dict[str, Any]]:
    """The text's tokens as `/tokenize` lists them: pieces of equal length."""
    size = CHARACTERS_A_TOKEN
    return [
        {
            "id": _FIRST_ID + sum(map(ord, text[at : at + size])),
            "text": text[at : at + size],
            "start": at,
            "stop": min(at + size, len(text)),
        }
        for at in range(0, len(text), size)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """What an answer says beside its tokens. `seed`: None where it is greedy.

    `finish_reason`: in TGI's own word; the last token of an answer that ends by itself is the end
    token, which is special.
    """

    order: Order
    model: str
    fingerprint: str
    created: int
    prompt_tokens: int
    finish_reason: str
    seed: int | None

    def last_token(self, k: int) -> dict[str, Any]:
        """The last token."""
        if self.finish_reason != EOS:
            return word_token(k)
        return {"id": _EOS_ID, "text": _EOS_TEXT, "logprob": LOGPROB, "special": True}

    def text(self, tokens: int) -> str:
        """The whole text, without the end token."""
        words = tokens - (self.finish_reason == EOS)
        prompt = self.order.prompt if self.order.has_prompt_text else ""
        return prompt + "".join(map(word, range(words)))

    @property
    def openai_reason(self) -> str:
        """The reason as the chat route and whole answers have it."""
        return "stop" if self.finish_reason == EOS else self.finish_reason

    def usage(self, tokens: int) -> dict[str, int]:
        """The tokens of a complete answer."""
        prompt = self.prompt_tokens
        return {
            "prompt_tokens": prompt,
            "completion_tokens": tokens,
            "total_tokens": prompt + tokens,
        }

    def chunk(
        self, choices: list[dict[str, Any]], usage: dict[str, int] | None = None
    ) -> dict[str, Any]:
        """An event of an OpenAI route."""
        names = {"model": self.model, "system_fingerprint": self.fingerprint}
        if self.order.form is Form.CHAT:
            head = {"object": "chat.completion.chunk", "id": "", "created": self.created}
            return {**head, **names, "choices": choices, "usage": usage}
        head = {"object": "text_completion", "id": "", "created": self.created}
        if usage is None:
            return {**head, "choices": choices, **names}
        return {**head, **names, "choices": choices, "usage": usage}

    def choice(self, token: Mapping[str, Any], reason: str | None) -> dict[str, Any]:
        """One token in an event of an OpenAI route."""
        if self.order.form is Form.CHAT:
            content = "" if token["special"] else token["text"]
            delta = {"role": "assistant", "content": content}
            return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return {
            "index": 0,
            "text": token["text"],
            "logprobs": None,
            "finish_reason": reason or "",
        }
