"""Pull requests at GitHub, GitLab and Gitea, in one shape; what is not plain for all is decided here."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from msgspec import Struct

from muster.model.errors import BadConfig, Conflict, ForgeRefused, NotFound
from muster.outbound.forge_api import GRAPHQL, ForgeApi, HttpApi, ToolApi, rows

_THREADS = (
    "query($owner:String!,$name:String!,$number:Int!){repository(owner:$owner,name:$name){"
    "pullRequest(number:$number){reviewThreads(last:100){nodes{isResolved "
    "comments(first:100){nodes{databaseId}}}}}}}"
)
PASSED, FAILED, PENDING = "passed", "failed", "pending"
OPEN, MERGED, CLOSED = "open", "merged", "closed"
_SCP = re.compile(r"(?:[^/@]+@)?(?P<host>[^/:]+):(?P<path>[^:].*)")
_DEVELOPER = 30
"""GitLab's lowest access level that may push."""
_WRITES = frozenset({"admin", "write", "maintain", "owner"})
_GOOD = frozenset({"success", "neutral", "skipped", "manual"})
_BAD = frozenset(
    {"failure", "failed", "error", "timed_out", "cancelled", "canceled", "startup_failure", "stale"}
)


class PullRequest(NamedTuple):
    number: int
    url: str
    state: str
    commit: str
    """The newest one that the forge has of it."""
    base: str
    body: str


class ForgeCheck(Struct, frozen=True):
    name: str
    status: str
    said: str
    url: str


class Comment(Struct, frozen=True):
    id: str
    author: str
    writes: bool
    """Its author is a person who may push to the repository."""
    path: str
    line: int | None
    text: str
    url: str


class Place(NamedTuple):
    """Where a remote leads."""

    host: str
    slug: str
    """`owner/name`."""


class GitHub:
    what = "pull request"
    scheme = "Bearer"

    def __init__(self, api: ForgeApi, slug: str) -> None:
        self.api = api
        self._slug = slug
        self._home = f"repos/{quote(slug)}"
        self._writers: dict[str, bool] = {}

    def find(self, head: str) -> PullRequest | None:
        """The open one of this branch."""
        owner = quote(self._slug.partition("/")[0])
        found = self.api.call("GET", f"{self._home}/pulls?state=open&head={owner}:{quote(head, safe='')}")
        return next((self._told(one) for one in found if one["head"]["ref"] == head), None)

    def open(self, head: str, base: str, title: str, body: str) -> PullRequest:
        asked = {"head": head, "base": base, "title": title, "body": body}
        return self._told(self.api.call("POST", f"{self._home}/pulls", asked))

    def update(self, number: int, base: str, body: str) -> PullRequest:
        asked = {"body": body} | ({"base": base} if base else {})
        return self._told(self.api.call("PATCH", f"{self._home}/pulls/{number}", asked))

    def view(self, number: int) -> PullRequest:
        return self._told(self.api.call("GET", f"{self._home}/pulls/{number}"))

    def _told(self, one: Mapping[str, Any]) -> PullRequest:
        merged = one.get("merged") or one.get("merged_at")
        state = MERGED if merged else OPEN if one["state"] == "open" else CLOSED
        sides = one["head"]["sha"], one["base"]["ref"]
        return PullRequest(one["number"], one["html_url"], state, *sides, one.get("body") or "")

    def checks(self, commit: str) -> list[ForgeCheck]:
        try:
            runs = rows(self.api, f"{self._home}/commits/{commit}/check-runs", "check_runs")
        except ForgeRefused:  # fine-grained tokens may not read check runs, but those of Actions
            runs = rows(self.api, f"{self._home}/actions/runs?head_sha={commit}", "workflow_runs")
        found = []
        for run in runs:
            output = run.get("output") or {}
            said = "\n".join(filter(None, (output.get("title"), output.get("summary"))))
            status = _status(run["conclusion"]) if run["status"] == "completed" else PENDING
            found.append(ForgeCheck(run["name"], status, _plain(said), run.get("html_url") or ""))
        return found + self._statuses(commit)

    def _statuses(self, commit: str) -> list[ForgeCheck]:
        found = self.api.call("GET", f"{self._home}/commits/{commit}/status?per_page=100&limit=100")
        return [
            ForgeCheck(
                one["context"],
                _status(one.get("state") or one.get("status")),
                one.get("description") or "",
                one.get("target_url") or "",
            )
            for one in found.get("statuses") or ()
        ]

    def comments(self, number: int) -> list[Comment]:
        self._writers.clear()  # who may write now: somebody may have lost it since the last look
        found = [
            self._comment("review", one, one["body"])
            for one in rows(self.api, f"{self._home}/pulls/{number}/reviews")
            if one["state"] in {"CHANGES_REQUESTED", "COMMENTED", "REQUEST_CHANGES", "COMMENT"}
        ]
        found += [self._comment("line", one, one["body"]) for one in self._of_lines(number)]
        found += [
            self._comment("talk", one, one["body"])
            for one in rows(self.api, f"{self._home}/issues/{number}/comments")
        ]
        return [comment for comment in found if comment.text.strip()]

    def _of_lines(self, number: int) -> list[Any]:
        """Those of threads that are not resolved."""
        found, resolved = rows(self.api, f"{self._home}/pulls/{number}/comments"), self._resolved(number)
        return [one for one in found if one["id"] not in resolved]

    def _resolved(self, number: int) -> set[int]:
        """Only the other API of GitHub tells; where that is not there, or refused, nothing counts as resolved."""
        owner, _, name = self._slug.partition("/")
        variables = {"owner": owner, "name": name, "number": number}
        try:
            told = self.api.call("POST", GRAPHQL, {"query": _THREADS, "variables": variables})
            threads = told["data"]["repository"]["pullRequest"]["reviewThreads"]["nodes"]
        except (NotFound, ForgeRefused, Conflict, TypeError, KeyError):
            return set()
        done = [thread for thread in threads if thread["isResolved"]]
        return {one["databaseId"] for thread in done for one in thread["comments"]["nodes"]}

    def _comment(self, kind: str, one: Mapping[str, Any], text: str | None) -> Comment:
        author = (one.get("user") or {}).get("login") or "ghost"
        person = (one.get("user") or {}).get("type", "User") == "User"
        line = one.get("line") or one.get("original_line") or one.get("position")
        return Comment(
            f"{kind}-{one['id']}",
            author,
            person and self._may_write(author),
            one.get("path") or "",
            line,
            _plain(text),
            one.get("html_url") or "",
        )

    def _may_write(self, login: str) -> bool:
        if login not in self._writers:
            self._writers[login] = False
            with suppress(NotFound):
                found = self.api.call("GET", f"{self._home}/collaborators/{quote(login, safe='')}/permission")
                self._writers[login] = found.get("permission") in _WRITES
        return self._writers[login]


class Gitea(GitHub):
    scheme = "token"

    def find(self, head: str) -> PullRequest | None:
        found = rows(self.api, f"{self._home}/pulls?state=open")
        return next((self._told(one) for one in found if one["head"]["ref"] == head), None)

    def checks(self, commit: str) -> list[ForgeCheck]:
        return self._statuses(commit)

    def _of_lines(self, number: int) -> list[Any]:
        reviews = rows(self.api, f"{self._home}/pulls/{number}/reviews")
        found = [
            rows(self.api, f"{self._home}/pulls/{number}/reviews/{one['id']}/comments") for one in reviews
        ]
        return [comment for some in found for comment in some if not comment.get("resolver")]


class GitLab:
    what = "merge request"
    scheme = "Bearer"

    def __init__(self, api: ForgeApi, slug: str) -> None:
        self.api = api
        self._home = f"projects/{quote(slug, safe='')}"
        self._writers: dict[int, bool] = {}

    def find(self, head: str) -> PullRequest | None:
        """As GitHub.find."""
        asked = f"state=opened&source_branch={quote(head, safe='')}"
        found = self.api.call("GET", f"{self._home}/merge_requests?{asked}")
        return self._told(found[0]) if found else None

    def open(self, head: str, base: str, title: str, body: str) -> PullRequest:
        asked = {"source_branch": head, "target_branch": base, "title": title, "description": body}
        return self._told(self.api.call("POST", f"{self._home}/merge_requests", asked))

    def update(self, number: int, base: str, body: str) -> PullRequest:
        asked = {"description": body} | ({"target_branch": base} if base else {})
        return self._told(self.api.call("PUT", f"{self._home}/merge_requests/{number}", asked))

    def view(self, number: int) -> PullRequest:
        return self._told(self.api.call("GET", f"{self._home}/merge_requests/{number}"))

    def _told(self, one: Mapping[str, Any]) -> PullRequest:
        state = {"opened": OPEN, "merged": MERGED}.get(one["state"], CLOSED)
        sides = one["sha"], one["target_branch"]
        return PullRequest(one["iid"], one["web_url"], state, *sides, one.get("description") or "")

    def checks(self, commit: str) -> list[ForgeCheck]:
        found = rows(self.api, f"{self._home}/repository/commits/{commit}/statuses")
        return [
            ForgeCheck(
                one["name"],
                PASSED if one.get("allow_failure") else _status(one["status"]),
                one.get("description") or "",
                one.get("target_url") or "",
            )
            for one in found
        ]

    def comments(self, number: int) -> list[Comment]:
        self._writers.clear()  # as with GitHub
        found = []
        for one in rows(self.api, f"{self._home}/merge_requests/{number}/notes"):
            if one.get("system") or one.get("resolved"):
                continue
            at, author = one.get("position") or {}, one["author"]
            found.append(
                Comment(
                    f"note-{one['id']}",
                    author["username"],
                    not author.get("bot") and self._may_write(author["id"]),
                    at.get("new_path") or "",
                    at.get("new_line"),
                    _plain(one["body"]),
                    "",
                )
            )
        return found

    def _may_write(self, user: int) -> bool:
        if user not in self._writers:
            self._writers[user] = False
            with suppress(NotFound):
                found = self.api.call("GET", f"{self._home}/members/all/{user}")
                self._writers[user] = found["access_level"] >= _DEVELOPER
        return self._writers[user]


Forge = GitHub | GitLab


@dataclass(frozen=True)
class _Kind:
    forge: type[GitHub | GitLab]
    tool: str
    variables: tuple[str, ...]
    api_path: str
    hosts: tuple[str, ...]


_KINDS = (
    _Kind(GitHub, "gh", ("GH_TOKEN", "GITHUB_TOKEN"), "/api/v3", ("github",)),
    _Kind(GitLab, "glab", ("GITLAB_TOKEN",), "/api/v4", ("gitlab",)),
    _Kind(Gitea, "", ("GITEA_TOKEN",), "/api/v1", ("gitea", "codeberg", "forgejo")),
)


def place_of(url: str) -> Place | None:
    """None where the address of a remote is that of no forge, such as a folder."""
    parts = urlsplit(url)
    if parts.scheme in ("http", "https", "ssh", "git"):
        host, path = parts.hostname or "", parts.path
    elif parts.scheme or url.startswith(("/", ".")) or not (found := _SCP.fullmatch(url)):
        return None
    else:
        host, path = found["host"], found["path"]
    slug = path.strip("/").removesuffix(".git")
    return Place(host.lower(), slug) if host and "/" in slug else None


def forge_of(url: str, setting: str) -> Forge:
    """Of a remote's address; `setting` is the address of the forge's API where a person has named it.

    Raises NotFound, BadConfig, ForgeRefused.
    """
    place = place_of(url)
    if place is None:
        raise NotFound(
            "the remote's address names no repository of a forge; nothing was pushed",
            "git remote set-url NAME https://HOST/OWNER/REPOSITORY",
        )
    kind = next((kind for kind in _KINDS if _is(kind, place.host, setting)), None)
    if kind is None:
        known = "https://HOST followed by /api/v3 (GitHub), /api/v4 (GitLab) or /api/v1 (Gitea)"
        where = f"git.forge = {setting!r}" if setting else f"the remote's host {place.host}"
        raise BadConfig(f"{where} does not say which forge it is; nothing was pushed", f"git.forge = {known}")
    if not setting and kind.tool and shutil.which(kind.tool):
        return kind.forge(ToolApi(kind.tool, place.host), place.slug)
    variable = next((name for name in kind.variables if os.environ.get(name)), "")
    if not variable:
        names = " or ".join(kind.variables)
        other = f", or install {kind.tool} and log in" if kind.tool and not setting else ""
        raise ForgeRefused(f"there is no token for {place.host}; nothing was pushed", f"set {names}{other}")
    usual = "https://api.github.com" if place.host == "github.com" else f"https://{place.host}{kind.api_path}"
    api = HttpApi(setting or usual, kind.forge.scheme, os.environ[variable].strip(), variable)
    return kind.forge(api, place.slug)


def _is(kind: _Kind, host: str, setting: str) -> bool:
    if setting:
        parts = urlsplit(setting)
        return parts.path.rstrip("/").endswith(kind.api_path) or parts.hostname == f"api.{kind.hosts[0]}.com"
    return any(host.startswith(f"{name}.") or f".{name}." in host for name in kind.hosts)


def _plain(text: str | None) -> str:
    """What can be kept and told: no half characters, no NUL."""
    return (text or "").replace("\0", "").encode(errors="replace").decode()


def _status(word: str | None) -> str:
    if word in _GOOD:
        return PASSED
    return FAILED if word in _BAD else PENDING
