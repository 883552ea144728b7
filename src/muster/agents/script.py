"""A prompt that is to be executed: the code in its fenced blocks, or else all of it."""

from __future__ import annotations

import re

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})[^\n]*\n(.*?)^ {0,3}\1[`~]*[ \t]*$", re.MULTILINE | re.DOTALL)


def script_of(prompt: str) -> str:
    """People put commands into fences; to a shell the fence itself would be a command substitution."""
    blocks = [match[2] for match in _FENCE.finditer(prompt + "\n")]
    return "\n".join(blocks) if blocks else prompt
