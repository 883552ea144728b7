"""What texts of a fixed form look like, each with the words in which a refusal says so.

Each ends with `$(?!\\n)`, for `$` alone lets a line break follow.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Pattern(NamedTuple):
    regex: str
    rule: str
    """What it takes, in words."""


MEMBER = Pattern(
    r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,99}$(?!\n)",
    "letters, digits and . _ @ -, at most 100; the first is a letter or a digit",
)
WORKSPACE = Pattern(
    r"^[a-z0-9][a-z0-9-]{0,62}$(?!\n)",
    "small letters, digits and -, at most 63; the first is a letter or a digit",
)
SECRET = Pattern(
    r"^(?!MUSTER_)[A-Za-z_][A-Za-z0-9_]{0,99}$(?!\n)",
    "letters, digits and _, at most 100; the first is no digit, and it does not begin with MUSTER_",
)
WEBHOOK = Pattern(
    r"^https?://[^\s/?#@]+([/?#]\S*)?$(?!\n)",
    "a web address (http or https), without spaces or a login",
)
MESSAGE = Pattern(r"^(msg|digest)_[a-z0-9]{1,64}$(?!\n)", "the id of a message, such as msg_1a2b")
WORKER = Pattern(r"^worker-[a-z0-9]{8}$(?!\n)", "worker- and 8 small letters or digits")
ARTIFACT = Pattern(r"^(?!\.\.?$)[\s\S]", "a name that is not . or .., which browsers leave out of an address")
SHA256 = Pattern(r"^[0-9a-f]{64}$(?!\n)", "a SHA-256 in 64 hexadecimal digits, small letters")
COMMIT = Pattern(
    r"^([0-9a-f]{40}|[0-9a-f]{64})$(?!\n)", "a whole commit id, 40 or 64 hexadecimal digits, small letters"
)
CHANGES = Pattern(r"^(none)?$(?!\n)", "the word none, or an empty text")
ORDER = Pattern(r"^(file|phases|free)?$(?!\n)", "file, phases or free, or an empty text")
STREAM = Pattern(r"^(stdout|stderr)$(?!\n)", "stdout or stderr")
_SPAN = r"(?:stdout|stderr)\.\d{0,18}\.\d{1,18}"
SPANS = Pattern(rf"^(?:{_SPAN}(?:~{_SPAN})?)?$(?!\n)", "what stands there in the address of a next page")
VIEW = Pattern(r"^(board)?$(?!\n)", "the word board, or an empty text")

_ALL = (
    *(MEMBER, WORKSPACE, SECRET, WEBHOOK, MESSAGE, WORKER, ARTIFACT),
    *(SHA256, COMMIT, CHANGES, ORDER, SPANS, STREAM, VIEW),
)
RULES = {one.regex: one.rule for one in _ALL}
_TOLD = {f"Expected `str` matching regex {one.regex!r}": f"Expected {one.rule}" for one in _ALL}
_REGEX = re.compile("|".join(map(re.escape, _TOLD)))


def in_words(message: str) -> str:
    """What msgspec complains of, for people who read no regular expressions."""
    return _REGEX.sub(lambda found: _TOLD[found[0]], message)
