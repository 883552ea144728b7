"""A refusal for somebody who reads it in a browser."""

from __future__ import annotations

from muster.web.http import PROBLEM, Reply, Request
from muster.web.open_paths import is_page


def wants_page(request: Request) -> bool:
    return bool(request.headers) and is_page(request.path) and "text/html" in request.header(b"accept")


def as_page(request: Request, reply: Reply) -> Reply:
    """The same words on a page; who is not known there is told how to get in."""
    if reply.media_type != PROBLEM:
        return reply
    from muster.web.pages.render import refusal  # nobody pays for it who sees no page

    return refusal(request, reply)
