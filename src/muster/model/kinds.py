"""Kinds of value, as people write them: in a box of a plan, behind an option of the CLI."""

from __future__ import annotations

from datetime import UTC, datetime

from muster.model.durations import duration_text, parse_duration
from muster.model.errors import BadConfig
from muster.model.numbers import NUMBER_MAX, whole
from muster.model.states import FailedDependency

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

NAME_CHARS_MAX = 200
TITLE_CHARS_MAX = 10_000
SOUGHT_CHARS_MAX = 200
"""Of what is looked for in titles and names."""
SECONDS_MAX = 366 * 86400
RETRIES_MAX = 1_000_000
PRIORITIES = {"P0": 10, "P1": 7, "P2": 4}


class Kind:
    def __init__(
        self,
        read: Callable[[str], Any],
        expected: str,
        metavar: str,
        write: Callable[[Any], str] = str,
        choices: tuple[str, ...] = (),
    ) -> None:
        """`read` raises ValueError; `expected` is what a value must be, as an error says it."""
        self.read = read
        self.expected = expected
        self.metavar = metavar
        self.write = write
        self.choices = choices


def _number(least: int, most: int) -> Callable[[str], int]:
    return lambda text: whole(text, least, most)


def _name(text: str) -> str:
    if not 0 < len(text.strip()) <= NAME_CHARS_MAX:
        raise ValueError(text)
    return text


def _key(text: str) -> str:
    if not text.strip():
        raise ValueError(text)
    return text


def _priority(text: str) -> int:
    return PRIORITIES.get(text.upper()) or whole(text, 1, 10)


def _seconds(text: str) -> int:
    try:
        seconds = round(parse_duration(text))
    except BadConfig as error:
        raise ValueError(error.message) from None
    return whole(str(seconds), 1, SECONDS_MAX)


def _moment(text: str) -> int:
    """Unix time in milliseconds of an ISO 8601 date or time; one without a zone is local."""
    try:
        at_s = datetime.fromisoformat(text).astimezone().timestamp()
    except (OverflowError, OSError) as error:
        raise ValueError(text) from error
    return whole(str(round(at_s * 1000)))


def moment_text(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")


def pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(text)
    return _name(name.strip()), value


def _pairs(text: str) -> dict[str, str]:
    pairs = [pair(part.strip()) for part in text.split(",")]
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError(text)
    return found


def _json(value: Any) -> str:
    import json  # hardly a command needs it

    return json.dumps(value, ensure_ascii=False)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else _json(value)


def _object(text: str) -> dict[str, Any]:
    import json

    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError(text)
    return found


def _choice(text: str) -> FailedDependency:
    return FailedDependency(text)


def _only(word: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text != word:
            raise ValueError(text)
        return text

    return read


def _list(read: Callable[[str], str]) -> Callable[[str], tuple[str, ...]]:
    return lambda text: tuple(dict.fromkeys([read(part.strip()) for part in text.split(",")]))


_DURATION = f"a duration from 1s to {duration_text(SECONDS_MAX)}, such as 90s, 30m, 2h or 1d"
_MOMENT = "a date or time such as 2027-01-31 or 2027-01-31T18:00, local unless it names a zone"

TEXT = Kind(str, "a text", "TEXT")
NAME = Kind(_name, f"a name of 1 to {NAME_CHARS_MAX} characters", "NAME")
NAMES = Kind(_list(_name), "a name, or several with commas between them", "NAME,...", ",".join)
KEY = Kind(_key, "the name of a task", "REF")
KEYS = Kind(_list(_key), "a task, or several with commas between them", "REF,...", ",".join)
PRIORITY = Kind(_priority, "a number from 1 to 10, high first, or P0, P1, P2", "N")
ORDER = Kind(_number(-NUMBER_MAX, NUMBER_MAX), "a whole number, low first", "N")
COUNT = Kind(_number(0, RETRIES_MAX), f"a number from 0 to {RETRIES_MAX}", "N")
SECONDS = Kind(_seconds, _DURATION, "TIME", duration_text)
MOMENT = Kind(_moment, _MOMENT, "DATE", moment_text)
PAIRS = Kind(
    _pairs,
    "KEY=VALUE, or several with commas between them, each key once",
    "K=V",
    lambda given: ",".join(f"{name}={_plain(value)}" for name, value in given.items()),
)
OBJECT = Kind(_object, 'a JSON object such as {"branch": "main"}', "JSON", _json)
CHANGES = Kind(_only("none"), "none", "none", choices=("none",))
ON_FAILED = Kind(
    _choice, "block, skip or run", "|".join(FailedDependency), choices=tuple(map(str, FailedDependency))
)
