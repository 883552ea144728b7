"""What a form wants is asked of the API, by whoever has sent the form: with the API's rights, bounds and words.

POST /tasks/7/retry   note=...   ->   POST /api/v1/agent-tasks/7/retry {"note": "..."}
"""

from __future__ import annotations

import re
from urllib.parse import quote

import msgspec

from muster.model.json_value import Json
from muster.web.http import Problem, Reply, Request
from muster.web.identity import local_actor
from muster.web.rights import refuse
from muster.web.visits import stood_on

SEQ = "seq"
ASKED_AGAIN = frozenset({400, 409, 412, 413, 422})
"""Answers that are about what a form says, or about what it is for: it is shown again with them."""
_KEPT = frozenset({b"authorization", b"muster-attempt", b"x-request-id"})


async def ask_api(
    request: Request, path: str, body: Json, *, if_match: str = "", method: str = "POST"
) -> Reply:
    """The API's answer to the same caller."""
    headers = [one for one in request.headers if one[0].lower() in _KEPT]
    if if_match:  # a form whose word was changed is no form of ours, and is refused for it
        headers.append((b"if-match", f'"{if_match}"'.encode()))
    data = msgspec.json.encode({"actor": local_actor(), **body})
    asked = Request(method, path, headers, data, request.peer, address=request.address)
    asked.identity, asked.again = request.identity, request.again
    assert request.app is not None
    return await request.app(asked)


def refuse_action(request: Request, path: str, method: str = "POST") -> None:
    """Raises Forbidden where who asks may not ask that: nobody is shown a button that does nothing."""
    if request.identity is not None:
        refuse(request.identity, method, path.split("/"))


def problem_of(reply: Reply) -> Json:
    """What a refusal says, for a page."""
    found: Json = msgspec.to_builtins(msgspec.json.decode(reply.data, type=Problem))
    return found | {"detail": _plain(found["detail"])}


_SHAPE = re.compile(
    r"invalid request: Expected (?P<wanted>.+?)(?:, got .+)? - at `\$\.(?P<field>\w+)`; (?P<kept>.+)"
)
_LEAST = re.compile(r"`str` of length >= 1")
_MOST = re.compile(r"`str` of length <= (\d+)")
_BOUND = re.compile(r"`int` ([<>])= (-?\d+)")
_CALLED = {
    "description": "prompt",
    "sortKey": "place",
    "dependsOn": "list of what it comes after",
}
"""Fields of the API as its forms name them, where these differ."""


def _plain(detail: str) -> str:
    """In words for who has filled in a form, where a single field of it has not the shape that it should have."""
    found = _SHAPE.fullmatch(detail)
    if found is None:
        return detail
    wanted, field = found["wanted"], found["field"]
    if _LEAST.fullmatch(wanted):
        wrong = "is empty"
    elif most := _MOST.fullmatch(wanted):
        wrong = f"has more than {int(most[1]):,} characters"
    elif bound := _BOUND.fullmatch(wanted):
        wrong = f"is {'more' if bound[1] == '<' else 'less'} than {int(bound[2]):,}"
    else:
        wrong = f"is not {wanted.replace('`', '')}"
    return f"The {_CALLED.get(field, field)} {wrong}; {found['kept']}"


def back_to(fields: Json, usual: str, done: str = "") -> Reply:
    """Shows a page of ours again: the one that the form stood on."""
    path, _, query = stood_on(fields, usual).partition("?")
    kept = [part for part in query.split("&") if part and not part.startswith("done=")]
    asked = "&".join([*kept, *([f"done={quote(done)}"] if done else [])])
    target = quote(path, safe="/%:@,;+") + (f"?{quote(asked, safe='=&%+,;:/')}" if asked else "")
    return Reply(303, b"", "text/plain", (("location", target), ("cache-control", "no-store")))
