"""Whose browser asks: its cookie, and the word that only forms of our own pages hold.

A browser that was let in has a session: a token in the store like all others, whose secret is in a cookie that
no script can read.  It opens pages and nothing else; the API wants a token in a header, which no other site can
send.

SameSite is Lax: a link in a message has to lead to the page that it names, and opening one changes nothing.  What
does change something is posted, which brings no such cookie from another site, and needs the form's word besides.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import parse_qsl

from msgspec import Struct

from muster.model.errors import BadInput, Forbidden
from muster.web.http import Request
from muster.web.open_paths import ENTER

SESSION = "mss_"
"""How the secret of a session begins."""
SESSION_S = 12 * 3600
DOOR = b"muster-door"
"""Header of what comes by way of `muster ui`."""
CSRF = "csrf"
"""The field of a form."""
BACK = "back"
"""Likewise: the page that it stands on."""
LEAD_NOWHERE = (ENTER, "/sign-out")
"""Pages that nobody is to come back to."""
FIELDS_MAX = 50
NOTE_S = 600
"""So long a page says what a form has done, where no script takes that from its address."""
_NOTE = re.compile(r"([a-z-]{1,40})\.([0-9]{13})\.([0-9a-f]{32})")
_SECRET = re.compile(r"[A-Za-z0-9_-]{20,200}")
_AGAIN = "open the page again, and send its form"


class Visit(Struct, frozen=True):
    secret: str
    new: bool
    """The browser is to be told of it."""

    @property
    def csrf(self) -> str:
        """Who cannot read the cookie cannot make this."""
        return hashlib.sha256(f"form:{self.secret}".encode()).hexdigest()[:32]


def visit_of(request: Request) -> Visit:
    """A browser that was not let in as anybody has one as well, for its forms."""
    secret = secret_of(request)
    return Visit(secret, False) if secret else Visit(secrets.token_urlsafe(32), True)


class FormDone(NamedTuple):
    action: str
    at_ms: int


def done_word(request: Request, action: str) -> str:
    """For the address of the page that says that this was done now: nobody else can make one for this browser."""
    said = f"{action}.{time.time_ns() // 1_000_000:013}"
    return f"{said}.{_sealed(request, said)}"


def done_of(request: Request, word: str) -> FormDone | None:
    """What was done; None where this browser has not done it, or long ago."""
    found = _NOTE.fullmatch(word)
    if found is None or not hmac.compare_digest(found[3], _sealed(request, f"{found[1]}.{found[2]}")):
        return None
    at_ms = int(found[2])
    # Another server has perhaps done it, whose clock is ahead of ours.
    return FormDone(found[1], at_ms) if abs(time.time() - at_ms / 1000) <= NOTE_S else None


def _sealed(request: Request, said: str) -> str:
    secret = secret_of(request) or secrets.token_urlsafe(32)
    return hmac.new(secret.encode(), f"done:{said}".encode(), hashlib.sha256).hexdigest()[:32]


def secret_of(request: Request) -> str:
    """Of its cookie; empty without one."""
    name = _cookie_name(request)
    for pair in request.header(b"cookie").split(";"):
        key, _, value = pair.strip().partition("=")
        if key == name and _SECRET.fullmatch(value):
            return value
    return ""


def _cookie_name(request: Request) -> str:
    """Browsers send the cookies of one port to all ports of a host."""
    port = request.header(b"host").rpartition(":")[2]
    return f"muster_{port}" if port.isdigit() else "muster"


def cookie(request: Request, secret: str, max_age_s: int = SESSION_S) -> tuple[str, str]:
    secure = "; Secure" if request.header(b"origin").startswith("https://") else ""
    value = f"{_cookie_name(request)}={secret}; Path=/; Max-Age={max_age_s}; HttpOnly; SameSite=Lax{secure}"
    return "set-cookie", value


THEMES = frozenset({"light", "dark"})
_THEME = "muster_theme"
_YEAR_S = 365 * 86400


def theme_of(request: Request) -> str:
    """What its reader has chosen; empty: as their system has it."""
    for pair in request.header(b"cookie").split(";"):
        key, _, value = pair.strip().partition("=")
        if key == _THEME and value in THEMES:
            return value
    return ""


def theme_cookie(theme: str) -> tuple[str, str]:
    """The server draws the first paint in it already.  Nothing else hangs on it."""
    age_s = _YEAR_S if theme in THEMES else 0
    return "set-cookie", f"{_THEME}={theme if age_s else ''}; Path=/; Max-Age={age_s}; HttpOnly; SameSite=Lax"


def session_secret(nonce: str, parent: int) -> str:
    """Always the same of one nonce, so the store takes it once.  `parent`: the token that it stands for."""
    return f"{SESSION}{hashlib.sha256(f'session:{nonce}'.encode()).hexdigest()}-{parent}"


def parent_of(secret: str) -> int:
    """The token by which it was let in."""
    number = secret.rpartition("-")[2]
    return int(number) if number.isdigit() and len(number) < 17 else 0


def can_be_opened(target: str) -> bool:
    """It is a page of ours, and one to come back to."""
    path = target.partition("?")[0]
    ours = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return ours and path not in LEAD_NOWHERE


def refuse_other_sites(request: Request) -> None:
    """Raises Forbidden where the page that sends this is not one of ours."""
    said = request.header(b"sec-fetch-site")
    origin, host = request.header(b"origin"), request.header(b"host")
    ours = said in {"same-origin", "none"} if said else not origin or origin.partition("://")[2] == host
    if not ours:
        raise Forbidden("pages of other sites may not ask here; nothing was changed", _AGAIN)


def posted(request: Request) -> dict[str, str]:
    """The fields of a form.  Raises Forbidden where it is none of ours."""
    refuse_other_sites(request)
    fields = fields_of(request)
    secret = secret_of(request)
    if not secret or not hmac.compare_digest(
        fields.pop(CSRF, "").encode(), Visit(secret, False).csrf.encode()
    ):
        raise Forbidden("this form is not of a page that you have open; nothing was changed", _AGAIN)
    return fields


def fields_of(request: Request) -> dict[str, str]:
    """Raises BadInput."""
    try:
        text = bytes(request.body or b"").decode()
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=FIELDS_MAX, errors="strict")
    except ValueError as error:
        raise BadInput(f"this is no form: {error}; nothing was changed", _AGAIN) from error
    if any("\0" in value for _, value in pairs):
        raise BadInput("the form holds a NUL character; nothing was changed", "remove it")
    return {name: value.replace("\r\n", "\n") for name, value in pairs}


def stood_on(fields: Mapping[str, str], usual: str) -> str:
    """The page of ours that the form stood on; `usual` where it names none."""
    path = fields.get(BACK, "")
    return path if can_be_opened(path) else usual
