"""What a model provider's refusal means for the task: one table for all agent CLIs."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

from muster.agents.inputs import printable, shorten
from muster.model.states import ErrorKind
from muster.ports.agent import Failed

_BILLING = re.compile(
    r"credit balance|billing|insufficient_quota|quota exceeded|payment required|spend limit", re.IGNORECASE
)
_LIMIT = re.compile(r"usage limit|rate.?limit|too many requests|hit your limit", re.IGNORECASE)
_BUSY = re.compile(
    r"overloaded|high demand|at capacity|error sending request|connection ?(error|refused)|unable to connect"
    r"|ECONNREFUSED|ENOTFOUND|EAI_AGAIN",
    re.IGNORECASE,
)
_TOO_LONG = re.compile(r"prompt is too long|context.{0,10}(window|length)|maximum context", re.IGNORECASE)
_LOGIN = re.compile(
    r"not logged in|invalid api key|please run /login|authenticat|unauthorized", re.IGNORECASE
)
_NO_LOGIN = re.compile(r"not logged in|missing|no api key|no authentication|please run /login", re.IGNORECASE)
_RESET = re.compile(r"limit[^|]{0,80}\|(\d{10})\b")
_RESET_AT = re.compile(
    r"(?:again at|resets(?: at)?) (?:(?P<month>[a-z]{3})[a-z]* (?P<day>\d{1,2})(?:st|nd|rd|th)?"
    r"(?:, (?P<year>\d{4}))?,?(?: at)? )?(?P<hour>1[0-2]|0?[1-9])(?::(?P<minute>\d\d))? ?(?P<half>[ap])m\b"
    r"(?: \((?P<zone>[\w/+-]+)\))?",
    re.IGNORECASE,
)
_RESET_IN = re.compile(
    r"again in ((?:\d+(?:\.\d+)? ?(?:days?|hours?|minutes?|seconds?|ms|[dhms])\b[ ,]*)+)", re.IGNORECASE
)
_PART = re.compile(r"(\d+(?:\.\d+)?) ?(ms|[dhms])", re.IGNORECASE)
_PART_S = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_NEXT_DAY_H = 6
"""A bare time that is over since less long is that of today: its minute has passed meanwhile."""

_WORDS = {
    "authentication_failed": ErrorKind.AUTH,
    "oauth_org_not_allowed": ErrorKind.AUTH,
    "billing_error": ErrorKind.BILLING,
    "rate_limit": ErrorKind.RATE_LIMIT,
    "overloaded": ErrorKind.RATE_LIMIT,
    "model_not_found": ErrorKind.INVALID,
    "invalid_request": ErrorKind.INVALID,
    "invalid_request_error": ErrorKind.INVALID,
}
_INVALID = frozenset({400, 404, 405, 413, 422})

_STATUS = re.compile(r"\b([45]\d\d)\b")


def status_in(said: str) -> int | None:
    """The HTTP status that a CLI has put into its words."""
    found = _STATUS.search(said)
    return int(found[1]) if found else None


def refusal(
    said: str,
    *,
    status: int | None = None,
    word: str = "",
    reset_at_s: float | None = None,
    at_s: float | None = None,
) -> Failed:
    """The failure behind a CLI's error `said`, by its HTTP status and its name for it, then by its words.

    Whatever is unknown is a crash: it spends a retry and is tried again.  `at_s` is when that was said.
    """
    kind = _kind(said, status, word)
    if kind is ErrorKind.RATE_LIMIT and reset_at_s is None and at_s is not None:
        reset_at_s = stated_reset(said, at_s)
    if kind is ErrorKind.RATE_LIMIT and reset_at_s is not None:
        kind = ErrorKind.QUOTA
    return Failed(kind=kind, message=shorten(printable(said)), reset_at_s=reset_at_s)


def _kind(said: str, status: int | None, word: str) -> ErrorKind:
    # Billing is told as a 400 or a 429 by some: its words come first.
    if status == 402 or word == "billing_error" or _BILLING.search(said):
        return ErrorKind.BILLING
    if status in {401, 403}:
        return ErrorKind.AUTH
    if status is not None and (status == 429 or status >= 500):
        return ErrorKind.RATE_LIMIT
    if status in _INVALID or _TOO_LONG.search(said):
        return ErrorKind.INVALID
    if status is None and word in _WORDS:
        return _WORDS[word]
    if status is None and _LOGIN.search(said):
        return ErrorKind.AUTH
    if status is None and (_LIMIT.search(said) or _BUSY.search(said)):
        return ErrorKind.RATE_LIMIT
    return ErrorKind.CRASH


def lacks_login(said: str) -> bool:
    """Whether a refused login is none at all, by the words of the refusal."""
    return bool(_NO_LOGIN.search(said))


def stated_reset(said: str, at_s: float) -> float | None:
    """Unix time from which the provider takes requests again by the words of its refusal, said at `at_s`.

    Clock times are local where they name no zone.  None where nothing is said, or where that is over.
    """
    reset_at_s: float | None = None
    if found := _RESET.search(said):
        reset_at_s = float(found[1])
    elif found := _RESET_IN.search(said):
        reset_at_s = at_s + sum(float(n) * _PART_S[unit.lower()] for n, unit in _PART.findall(found[1]))
    elif found := _RESET_AT.search(said):
        reset_at_s = _clock_time(found, at_s)
    return reset_at_s if reset_at_s is not None and reset_at_s > at_s else None


def _clock_time(found: re.Match[str], at_s: float) -> float | None:
    try:
        zone: tzinfo | None = ZoneInfo(found["zone"]) if found["zone"] else None
        now = datetime.fromtimestamp(at_s, zone)
        hour = int(found["hour"]) % 12 + (12 if found["half"].lower() == "p" else 0)
        then = now.replace(hour=hour, minute=int(found["minute"] or 0), second=0, microsecond=0)
        if found["month"]:
            month = _MONTHS.index(found["month"].lower()) + 1
            then = then.replace(month=month, day=int(found["day"]), year=int(found["year"] or now.year))
        elif now - then > timedelta(hours=_NEXT_DAY_H):
            then += timedelta(days=1)
        return then.timestamp()
    except (LookupError, ValueError, OSError, OverflowError):  # no such day, or zone
        return None
