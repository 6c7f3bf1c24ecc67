"""What was said before in a session, as an engine's route wants it."""

from harness.types import Request


def messages(request: Request) -> list[dict[str, str]]:
    """The messages of the chat route: the history, then the prompt as the user's."""
    history = [{"role": turn.role, "content": turn.text} for turn in request.history]
    return [*history, {"role": "user", "content": request.prompt}]


def plain_text(request: Request) -> str:
    """The whole session as one text, for a route without roles.

    An answer follows its question as the engine wrote it, and the next question begins a new
    line: the text of each turn begins with that of the turn before, so that a prefix cache can
    reuse all of it.
    """
    text = ""
    for turn in request.history:
        text += f"\n{turn.text}" if text and turn.role != "assistant" else turn.text
    return f"{text}\n{request.prompt}" if text else request.prompt
