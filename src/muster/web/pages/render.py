"""From what is to be shown to a page.

Whatever a template prints is made harmless first (no control characters, nothing that turns writing around) and
then escaped; there is no inline script and no inline style, and the browser is told to take none.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import time
from collections.abc import Callable
from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from muster import __version__
from muster.model import shown
from muster.model.access import RIGHTS, Role
from muster.model.errors import BadInput
from muster.model.forms import POOL_ACTIONS, tag_seen, task_action
from muster.model.json_value import Json
from muster.model.rows import DEFAULT_WORKSPACE
from muster.model.wording import counted
from muster.web.http import Problem, Reply, Request
from muster.web.pages.assets import TEMPLATES, VERSION
from muster.web.rights import right_for
from muster.web.visits import (
    DOOR,
    SESSION,
    can_be_opened,
    cookie,
    done_of,
    fields_of,
    secret_of,
    stood_on,
    theme_of,
    visit_of,
)

if TYPE_CHECKING:
    import jinja2

HTML = "text/html; charset=utf-8"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
SECURITY = (
    ("content-security-policy", _POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cache-control", "no-store"),
)
_KEPT = ("cache-control", "private, no-cache")
_EVERYTHING = RIGHTS[Role.OWNER]


def page(request: Request, template: str, *, status: int = 200, keep: bool = False, **content: Any) -> Reply:
    """`keep`: its browser may, for Back: the answer to a form, which would have to be sent again for it."""
    visit = visit_of(request)
    who = request.identity
    if "done" in content:
        content["done"] = done_of(request, content["done"])
    text = (
        _environment()
        .get_template(template)
        .render(
            csrf=visit.csrf,
            here=_here(request),
            may=may_of(request),
            who=who,
            door=door(request),
            theme=theme_of(request),
            signed_in=who is not None or door(request),
            guest=who is not None and who.workspace_id != DEFAULT_WORKSPACE,
            now_ms=time.time_ns() // 1_000_000,
            **content,
        )
    )
    # Another site may have sent this, without the cookie that there is.
    met = visit.new and status < 400 and request.method == "GET"
    always = (*SECURITY[:-1], _KEPT) if keep else SECURITY
    headers = (*always, cookie(request, visit.secret)) if met else always
    return Reply(status, text.encode(), HTML, headers)


def _here(request: Request) -> str:
    """Where its page can be opened again: what a form has led to is not one, the page that it stood on is."""
    target = f"{request.path}?{request.query}" if request.query else request.path
    if request.method != "GET":
        with contextlib.suppress(BadInput):  # of which this page tells
            target = stood_on(fields_of(request), target)
    return target if can_be_opened(target) else "/"


def may_of(request: Request) -> Callable[[str, str], bool]:
    """Whether who asks may do that there."""
    rights = _EVERYTHING if request.identity is None else request.identity.rights
    return lambda method, path: right_for(method, path.split("/")) in rights


def refusal(request: Request, reply: Reply) -> Reply:
    """The page that tells of it, and gives back what was written.

    What its caller may not know by a cookie, it has not here either.

    Only a page that was asked for looks again by itself: what was posted would be done without anybody's word.
    """
    from muster.web.pages.written import written_in

    sent = request.method != "GET"
    problem = msgspec.json.decode(reply.data, type=Problem)
    made = page(
        request,
        "enter.html" if reply.status == 401 else "refusal.html",
        status=reply.status,
        problem=None if _first_visit(request, reply) else msgspec.to_builtins(problem),
        code="",
        back=_here(request),
        written=written_in(request),
        sent=sent,
    )
    return msgspec.structs.replace(made, headers=(*made.headers, *reply.headers), detail=reply.detail)


def _first_visit(request: Request, reply: Reply) -> bool:
    """Nobody has tried anything yet: a door that is only looked at warns of nothing."""
    return reply.status == 401 and request.method != "POST" and not secret_of(request).startswith(SESSION)


def door(request: Request) -> bool:
    """It comes by way of `muster ui`, which keeps its own sessions."""
    return bool(request.header(DOOR))


def json_of(value: Any) -> Any:
    """As the API sends it: pages show the same fields by the same names."""
    return msgspec.to_builtins(value)


@functools.cache
def _environment() -> jinja2.Environment:
    import jinja2  # 4 MB, which no owner pays whose pages nobody opens

    made = jinja2.Environment(
        loader=jinja2.DictLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_harmless,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.globals |= {
        "static": f"/static/{VERSION}",
        "version": __version__,
        "badge": _badge,
        "task_link": _task_link,
        "look": lambda name: shown.LOOKS.get(name, shown.UNKNOWN),
        "attempt_look": shown.attempt_look,
        "attempt_word": shown.attempt_word,
        "attempt_kind": shown.attempt_kind,
        "counted": counted,
        "span": shown.span,
        "told": shown.told,
        "paused_line": shown.paused_line,
        "paused_next": shown.paused_next,
        "used_up": shown.used_up,
        "pool_actions": POOL_ACTIONS,
        "tag_seen": tag_seen,
        "task_action": task_action,
    }
    made.filters |= {
        "age": shown.age,
        "counts": _counts,
        "iso": lambda ms: _time(ms).isoformat(timespec="seconds").replace("+00:00", "Z"),
        "clock": lambda ms: _time(ms).strftime("%H:%M:%S"),
        "day": lambda ms: _time(ms).strftime("%d %b %H:%M"),
        "moment": lambda ms: _time(ms).strftime("%d %b %H:%M:%S"),
        "digest": digest,
        "part": lambda text: quote(text, safe=""),
        "ref": shown.ref_of,
        "shell": shown.shell_word,
        "spent": shown.usage_words,
        "unescaped": shown.without_escapes,
    }
    return made


class _Html(str):
    """Made of harmless parts: it is printed as it stands."""

    __slots__ = ()

    def __html__(self) -> str:
        return self


@functools.lru_cache(1000)
def _badge(name: str, word: str | None = None) -> _Html:
    """Where something stands.  Pages have hundreds, of a few kinds: a macro takes twenty times as long."""
    found = shown.LOOKS.get(name, shown.UNKNOWN)
    said = escape(shown.inert(name if word is None else word))
    return _Html(
        f'<span class="state {found.tone}"><span aria-hidden="true">{found.glyph}</span> {said}</span>'
    )


def _task_link(task: Json) -> _Html:
    return _Html(f'<a href="/tasks/{task["id"]}">{escape(shown.inert(shown.ref_of(task)))}</a>')


def digest(text: str) -> str:
    """To tell one question of a task from the next one."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _harmless(value: object) -> object:
    """What is marked as safe was made of harmless parts."""
    return shown.inert(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def _time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def _counts(counts: Json) -> list[tuple[str, str, int]]:
    """(status, look, number) of each that there is any of."""
    return [
        (status.value, shown.COUNT_WORDS[status], counts[status])
        for status in shown.COUNT_ORDER
        if counts.get(status)
    ]
