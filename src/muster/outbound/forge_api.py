"""Requests to a forge's REST API: with the user's own `gh` or `glab`, else by HTTP with a token.

A token is in a header of a request, and nowhere else: not in arguments, not in errors, not in files.
"""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

import msgspec

from muster.hosts.handed_on import handed_on
from muster.hosts.user_git import without_logins
from muster.model.errors import BadConfig, Conflict, ForgeRefused, MusterError, NotFound, Unavailable

REPLY_S = 30.0
REPLY_BYTES_MAX = 16 << 20
PAGE_ROWS = 50
PAGES_MAX = 40
_HTTP = re.compile(r"HTTP (\d{3})")
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_SAID_MAX = 300
ODD_ANSWER = "the same once more, in a while; git.forge is the address of its API"
GRAPHQL = "graphql"
"""The path of GitHub's other API."""


T = TypeVar("T")


class ForgeApi(Protocol):
    name: str
    """Who answers, for people."""

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """What it answered, decoded.  Raises NotFound, ForgeRefused, Conflict, Unavailable."""


def told(api: ForgeApi, kind: type[T], method: str, path: str, body: Mapping[str, Any] | None = None) -> T:
    """What it answered, as that which it has to be.  Raises as ForgeApi.call."""
    return _read(api, kind, api.call(method, path, body), f"{method} {path}")


def rows(api: ForgeApi, kind: type[T], path: str, key: str = "", *, or_null: bool = True) -> list[T]:
    """All pages of a list; `key` is where it stands in the answer, `or_null`: an empty one may be null."""
    found: list[T] = []
    mark = "&" if "?" in path else "?"
    for page in range(1, PAGES_MAX + 1):
        asked = f"{path}{mark}per_page={PAGE_ROWS}&limit={PAGE_ROWS}&page={page}"
        answer = api.call("GET", asked)
        if key:
            page_of = _read(api, dict[str, Any], answer, f"GET {path}")
            answer = page_of.get(key, page_of)
        some: list[T] = [] if or_null and answer is None else _read(api, list[kind], answer, f"GET {path}")  # type: ignore[valid-type]
        found += some
        if len(some) < PAGE_ROWS:
            break
    return found


def _read(api: ForgeApi, kind: type[T], answer: Any, asked: str) -> T:
    try:
        return msgspec.convert(answer, kind)
    except msgspec.ValidationError as error:
        raise Unavailable(
            f"{api.name} answers {asked} with something else than that ({error}): {_message(answer)}",
            ODD_ANSWER,
        ) from None


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """The token is for the host that was named."""

    def redirect_request(self, *_: Any) -> None:
        return None


class HttpApi:
    def __init__(self, base: str, scheme: str, token: str, variable: str) -> None:
        """`scheme` is what stands before the token, `variable` where it is from.  Raises BadConfig."""
        parts = urlsplit(base)
        if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _LOOPBACK):
            raise BadConfig(
                f"the forge {without_logins(base)} is not https: no token is sent there",
                'git.forge = "https://..."',
            )
        self._base = base.rstrip("/")
        self.name = without_logins(self._base)
        self._headers = {"Authorization": f"{scheme} {token}"} if token else {}
        self._variable = variable
        self._token = token
        self._open = urllib.request.build_opener(_NoRedirects).open

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        base = self._base.removesuffix("/v3") if path == GRAPHQL else self._base
        request = urllib.request.Request(  # noqa: S310 - of https, or this machine
            f"{base}/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Accept": "application/json",
                "Content-Type": "application/json",
                "User-Agent": "muster",
                **self._headers,
            },
        )
        try:
            with self._open(request, timeout=REPLY_S) as reply:
                data = reply.read(REPLY_BYTES_MAX)
        except urllib.error.HTTPError as error:
            with error:
                told = error.read(REPLY_BYTES_MAX)
            hint = (
                f"see what the token in {self._variable} may do" if self._token else f"set {self._variable}"
            )
            raise refusal(error.code, self._said(told), f"{method} {path}", hint) from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise Unavailable(f"{self.name} does not answer: {reason}", "the same once more") from None
        return _decoded(data, self.name, f"{method} {path}")

    def _said(self, data: bytes) -> str:
        text = data.decode(errors="replace")
        return text.replace(self._token, "***") if self._token else text


class ToolApi:
    """`gh api` and `glab api` take the same words, and have their own logins."""

    def __init__(self, tool: str, host: str) -> None:
        self._tool = tool
        self._host = host
        self.name = f"{host} (by {tool})"

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        words = [self._tool, "api", "--hostname", self._host, "--method", method, path]
        if body is not None:
            words += ["--header", "Content-Type: application/json", "--input", "-"]
        env = {**handed_on(), "GH_PROMPT_DISABLED": "1", "NO_PROMPT": "1", "NO_COLOR": "1"}
        given = b"" if body is None else json.dumps(body).encode()
        try:
            done = subprocess.run(
                words, input=given, capture_output=True, env=env, timeout=REPLY_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Unavailable(
                f"{self._tool} cannot be run, or does not end: {error}", "the same once more"
            ) from None
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip()
            found = _HTTP.search(said)
            hint = f"{self._tool} auth status --hostname {self._host}"
            if found is None:
                raise ForgeRefused(
                    f"{self._tool} says: {said[:_SAID_MAX] or f'nothing, exit code {done.returncode}'}", hint
                )
            text = done.stdout.decode(errors="replace") or said
            raise refusal(int(found[1]), text, f"{method} {path}", hint)
        return _decoded(done.stdout, self.name, f"{method} {path}")


def refusal(status: int, told: str, asked: str, hint: str) -> MusterError:
    said = f"{asked}: {_said(told)}"
    if status == 403 and "rate limit" in said:
        return Unavailable(f"the forge answers {status}: {said}", "the same once more, in a while")
    if status in (401, 403):
        return ForgeRefused(f"the forge refuses ({status}): {said}", hint)
    if status == 404:
        return NotFound(f"the forge knows no such thing, or does not show it to you: {said}", hint)
    if status == 429 or status >= 500:
        return Unavailable(f"the forge answers {status}: {said}", "the same once more, in a while")
    if 300 <= status < 400:
        return Conflict(f"the forge has moved ({status}): {said}", "git remote set-url, or git.forge")
    return Conflict(f"the forge refuses ({status}): {said}", hint)


def _said(told: str) -> str:
    """What a problem's JSON says, in one line."""
    try:
        return _message(json.loads(told))
    except (ValueError, RecursionError):
        return " ".join(told.split())[:_SAID_MAX]


def _message(answer: Any) -> str:
    if not isinstance(answer, dict):
        return json.dumps(answer)[:_SAID_MAX]
    errors = answer.get("errors")
    listed = errors if isinstance(errors, list) else [errors]
    more = [one.get("message", one) if isinstance(one, dict) else one for one in listed]
    said = [answer.get("message") or answer.get("error") or answer, *more]
    return "; ".join(map(str, filter(None, said)))[:_SAID_MAX]


def _decoded(data: bytes, name: str, asked: str) -> Any:
    try:
        return json.loads(data) if data.strip() else None
    except (ValueError, RecursionError):
        said = _said(data[:_SAID_MAX].decode(errors="replace"))
        raise Unavailable(f"{name} answers {asked} with what is no JSON: {said}", ODD_ANSWER) from None
