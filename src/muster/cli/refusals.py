"""A refusal in a person's words: the task by its name, what was kept, and what to do instead."""

from __future__ import annotations

from muster.model.errors import IllegalMove, MusterError

_KEPT = "nothing was changed"


def refused(error: MusterError, ref: str, task_id: int) -> MusterError:
    """`error` about the task that people call `ref`: the engine knows it by its number only."""
    number = str(task_id)
    message = error.message.replace(f"task {number}", ref)
    if ref not in message:
        message = f"{ref}: {message}"
    hint = error.hint.replace(number, shell_word(ref))
    if isinstance(error, IllegalMove):
        message = message if _KEPT in message else f"{message}; {_KEPT}"
        hint = hint or f"muster task show {shell_word(ref)}"
    return type(error)(message, hint)


def shell_word(text: str) -> str:
    """`text` as it is typed into a shell; a key may hold blanks and `$`."""
    if all(char.isalnum() or char in "/._-@" for char in text) and text.isascii():
        return text
    from shlex import quote

    return quote(text)
