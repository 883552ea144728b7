"""What a model provider's refusal means for the task: one table for all agent CLIs."""

from __future__ import annotations

import re

from muster.agents.inputs import printable, shorten
from muster.model.states import ErrorKind
from muster.ports.agent import Failed

_BILLING = re.compile(
    r"credit balance|billing|insufficient_quota|quota exceeded|payment required|spend limit", re.IGNORECASE
)
_LIMIT = re.compile(r"usage limit|rate.?limit|too many requests|hit your limit", re.IGNORECASE)
_BUSY = re.compile(r"overloaded|high demand|at capacity", re.IGNORECASE)
_TOO_LONG = re.compile(r"prompt is too long|context.{0,10}(window|length)|maximum context", re.IGNORECASE)
_LOGIN = re.compile(
    r"not logged in|invalid api key|please run /login|authenticat|unauthorized", re.IGNORECASE
)
_RESET = re.compile(r"limit[^|]{0,80}\|(\d{10})\b")

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
_OVERLOADED = 529
_INVALID = frozenset({400, 404, 405, 413, 422})


def refusal(
    said: str, *, status: int | None = None, word: str = "", reset_at_s: float | None = None
) -> Failed:
    """The failure behind a CLI's error `said`, by its HTTP status and its name for it, then by its words.

    Whatever is unknown is a crash: it spends a retry and is tried again.
    """
    kind = _kind(said, status, word)
    if kind is ErrorKind.RATE_LIMIT and reset_at_s is None and (found := _RESET.search(said)):
        reset_at_s = float(found[1])
    if kind is ErrorKind.RATE_LIMIT and reset_at_s is not None:
        kind = ErrorKind.QUOTA
    return Failed(kind=kind, message=shorten(printable(said)), reset_at_s=reset_at_s)


def _kind(said: str, status: int | None, word: str) -> ErrorKind:
    # Billing is told as a 400 or a 429 by some: its words come first.
    if status == 402 or word == "billing_error" or _BILLING.search(said):
        return ErrorKind.BILLING
    if status in {401, 403}:
        return ErrorKind.AUTH
    if status in {429, _OVERLOADED}:
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
