"""Requests to a forge's REST API: with the user's own `gh` or `glab`, else by HTTP with a token.

A token is in a header of a request, and nowhere else: not in arguments, not in errors, not in files.
"""

from __future__ import annotations

import json
import re
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import urlsplit

from muster.hosts.handed_on import handed_on
from muster.model.errors import BadConfig, Conflict, ForgeRefused, MusterError, NotFound, Unavailable

REPLY_S = 30.0
REPLY_BYTES_MAX = 16 << 20
PAGE_ROWS = 50
PAGES_MAX = 40
_HTTP = re.compile(r"HTTP (\d{3})")
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_SAID_MAX = 300
GRAPHQL = "graphql"
"""The path of GitHub's other API."""


class ForgeApi(Protocol):
    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """What it answered, decoded.  Raises NotFound, ForgeRefused, Conflict, Unavailable."""


def rows(api: ForgeApi, path: str, key: str = "") -> list[Any]:
    """All pages of a list; `key` is where it stands in the answer."""
    found: list[Any] = []
    mark = "&" if "?" in path else "?"
    for page in range(1, PAGES_MAX + 1):
        answer = api.call("GET", f"{path}{mark}per_page={PAGE_ROWS}&limit={PAGE_ROWS}&page={page}")
        some = answer[key] if key else answer
        found += some or []
        if len(some or ()) < PAGE_ROWS:
            break
    return found


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
                f"the forge {base} is not https: no token is sent there", 'git.forge = "https://..."'
            )
        self._base = base.rstrip("/")
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
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise Unavailable(f"{self._base} does not answer: {reason}", "the same once more") from None
        return _decoded(data)

    def _said(self, data: bytes) -> str:
        text = data.decode(errors="replace")
        return text.replace(self._token, "***") if self._token else text


class ToolApi:
    """`gh api` and `glab api` take the same words, and have their own logins."""

    def __init__(self, tool: str, host: str) -> None:
        self._tool = tool
        self._host = host

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
        return _decoded(done.stdout)


def refusal(status: int, told: str, asked: str, hint: str) -> MusterError:
    said = f"{asked}: {_message(told)}"
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


def _message(told: str) -> str:
    """What a problem's JSON says, in one line."""
    try:
        found = json.loads(told)
    except ValueError:
        return " ".join(told.split())[:_SAID_MAX]
    if isinstance(found, dict):
        more = [
            one.get("message", one) if isinstance(one, dict) else one for one in found.get("errors") or ()
        ]
        said = [found.get("message") or found.get("error") or found, *more]
        return "; ".join(map(str, filter(None, said)))[:_SAID_MAX]
    return str(found)[:_SAID_MAX]


def _decoded(data: bytes) -> Any:
    try:
        return json.loads(data) if data.strip() else None
    except ValueError:
        raise Unavailable(
            "the forge's answer is no JSON", "see git.forge: it is the address of its API"
        ) from None
