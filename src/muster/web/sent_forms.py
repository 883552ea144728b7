"""Forms that are taken once: whoever loads the answer of a form again sends that form again.

Each is drawn with a word of its own, which says when that was.  What this process has taken it remembers, up to a
number of them; of a form that is older than what it remembers it cannot tell, and takes none.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Mapping

from muster.model.errors import Conflict
from muster.web.http import Reply, Request
from muster.web.visits import secret_of

ONCE = "once"
"""The field of a form."""
KEPT_MAX = 10_000
_WORD = re.compile(r"([0-9]{13})-[A-Za-z0-9_-]{22}")
_Key = tuple[str, str]


def _steady_clock() -> Callable[[], int]:
    """Wall time in ms, as of when this is called: nobody sets it back."""
    begun_ns = time.time_ns() - time.monotonic_ns()
    return lambda: (begun_ns + time.monotonic_ns()) // 1_000_000


class SentForms:
    def __init__(self, now_ms: Callable[[], int] | None = None) -> None:
        self._now_ms = now_ms or _steady_clock()
        self._since_ms = self._now_ms()
        self._taken: dict[_Key, int] = {}

    def word(self) -> str:
        """For a form that is drawn now."""
        return f"{self._now_ms():013}-{secrets.token_urlsafe(16)}"

    def take(self, request: Request, fields: Mapping[str, str]) -> _Key | None:
        """None: it was sent already, or is being carried out.  Raises Conflict where that is not known.

        To be called before what it does is begun: a second one may come at any moment.
        """
        key = secret_of(request), fields.get(ONCE, "")
        if key in self._taken:
            return None
        found = _WORD.fullmatch(key[1])
        drawn_ms = min(int(found[1]), self._now_ms()) if found else -1
        if drawn_ms < self._since_ms:
            raise Conflict(
                "this form is too old to tell whether it was sent already; nothing was changed",
                "look whether it was done; if not, send it from a page that is opened anew",
            )
        self._taken[key] = drawn_ms
        if len(self._taken) > KEPT_MAX:
            self._since_ms = max(self._since_ms, self._taken.pop(next(iter(self._taken))) + 1)
        return key

    def give_back(self, key: _Key) -> None:
        """Of a form that was refused: it may be sent again."""
        self._taken.pop(key, None)


def sent_already(request: Request, label: str, back: str, again: str = "") -> Reply:
    """The page that says so.  `again`: where another such form is, of one that has shown a secret."""
    from muster.web.pages.render import page

    return page(
        request,
        "sent.html",
        status=Conflict.http_status,
        label=label,
        back=back,
        again=again,
    )
