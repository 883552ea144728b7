"""Pull requests at GitHub, GitLab and Gitea, in one shape; what is not plain for all is decided here."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from msgspec import Struct

from muster.model.errors import BadConfig, Conflict, ForgeRefused, NotFound
from muster.outbound.forge_answers import (
    HubPermission,
    HubPull,
    HubRemark,
    HubRun,
    HubSide,
    HubStatuses,
    LabMember,
    LabNote,
    LabRequest,
    LabStatus,
)
from muster.outbound.forge_api import GRAPHQL, ForgeApi, HttpApi, ToolApi, rows, told

_THREADS = (
    "query($owner:String!,$name:String!,$number:Int!){repository(owner:$owner,name:$name){"
    "pullRequest(number:$number){reviewThreads(last:100){nodes{isResolved "
    "comments(first:100){nodes{databaseId}}}}}}}"
)
PASSED, FAILED, PENDING = "passed", "failed", "pending"
OPEN, MERGED, CLOSED = "open", "merged", "closed"
_SCP = re.compile(r"(?:[^/@]+@)?(?P<host>[^/:]+):(?P<path>[^:].*)")
_SSH_HOSTS = {"ssh.github.com": "github.com", "altssh.gitlab.com": "gitlab.com"}
"""What answers ssh on the port of https, and what it is a way to."""
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
    own: bool
    """Its branch is one of this very repository: anybody's fork may have one of the same name."""


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
    port: int | None = None
    """Where its pages are, and its API, if the address tells that."""


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
        asked = f"{self._home}/pulls?state=open&head={owner}:{quote(head, safe='')}"
        return self._own(rows(self.api, HubPull, asked, or_null=False), head)

    def _own(self, found: Iterable[HubPull], head: str) -> PullRequest | None:
        of_it = (one for one in found if one.own and one.head is not None and one.head.ref == head)
        return next((self._told(one) for one in of_it if one.state == "open"), None)

    def open(self, head: str, base: str, title: str, body: str) -> PullRequest:
        asked = {"head": head, "base": base, "title": title, "body": body}
        return self._told(told(self.api, HubPull, "POST", f"{self._home}/pulls", asked))

    def update(self, number: int, base: str, body: str) -> PullRequest:
        asked = {"body": body} | ({"base": base} if base else {})
        return self._told(told(self.api, HubPull, "PATCH", f"{self._home}/pulls/{number}", asked))

    def view(self, number: int) -> PullRequest:
        return self._told(told(self.api, HubPull, "GET", f"{self._home}/pulls/{number}"))

    def _told(self, one: HubPull) -> PullRequest:
        state = MERGED if one.merged or one.merged_at else OPEN if one.state == "open" else CLOSED
        sides = (one.head or HubSide()).sha or "", one.base.ref or ""
        return PullRequest(one.number, one.html_url, state, *sides, one.body or "", one.own)

    def checks(self, commit: str) -> list[ForgeCheck]:
        try:
            runs = rows(self.api, HubRun, f"{self._home}/commits/{commit}/check-runs", "check_runs")
        except ForgeRefused:  # fine-grained tokens may not read check runs, but those of Actions
            runs = rows(self.api, HubRun, f"{self._home}/actions/runs?head_sha={commit}", "workflow_runs")
        found = []
        for run in runs:
            output = run.output and (run.output.title, run.output.summary)
            said = "\n".join(filter(None, output or ()))
            status = _status(run.conclusion) if run.status == "completed" else PENDING
            found.append(ForgeCheck(run.name or "a run", status, _plain(said), run.html_url or ""))
        return found + self._statuses(commit)

    def _statuses(self, commit: str) -> list[ForgeCheck]:
        asked = f"{self._home}/commits/{commit}/status?per_page=100&limit=100"
        found = told(self.api, HubStatuses, "GET", asked)
        return [
            ForgeCheck(
                one.context, _status(one.state or one.status), one.description or "", one.target_url or ""
            )
            for one in found.statuses or ()
        ]

    def comments(self, number: int) -> list[Comment]:
        self._writers.clear()  # who may write now: somebody may have lost it since the last look
        found = [
            self._comment("review", one)
            for one in rows(self.api, HubRemark, f"{self._home}/pulls/{number}/reviews")
            if one.state in {"CHANGES_REQUESTED", "COMMENTED", "REQUEST_CHANGES", "COMMENT"}
        ]
        found += [self._comment("line", one) for one in self._of_lines(number)]
        whole = rows(self.api, HubRemark, f"{self._home}/issues/{number}/comments")
        found += [self._comment("talk", one) for one in whole]
        return [comment for comment in found if comment.text.strip()]

    def _of_lines(self, number: int) -> list[HubRemark]:
        """Those of threads that are not resolved."""
        found = rows(self.api, HubRemark, f"{self._home}/pulls/{number}/comments")
        resolved = self._resolved(number)
        return [one for one in found if one.id not in resolved]

    def _resolved(self, number: int) -> set[int]:
        """Only the other API of GitHub tells; where that is not there, or refused, nothing counts as resolved."""
        owner, _, name = self._slug.partition("/")
        variables = {"owner": owner, "name": name, "number": number}
        try:
            answer = self.api.call("POST", GRAPHQL, {"query": _THREADS, "variables": variables})
            threads = answer["data"]["repository"]["pullRequest"]["reviewThreads"]["nodes"]
            done = [thread for thread in threads if thread["isResolved"]]
            return {one["databaseId"] for thread in done for one in thread["comments"]["nodes"]}
        except (NotFound, ForgeRefused, Conflict, TypeError, KeyError):
            return set()

    def _comment(self, kind: str, one: HubRemark) -> Comment:
        author = (one.user and one.user.login) or "ghost"
        person = one.user is None or one.user.type in (None, "User")
        return Comment(
            f"{kind}-{one.id}",
            author,
            person and self._may_write(author),
            one.path or "",
            one.line or one.original_line or one.position,
            _plain(one.body),
            one.html_url or "",
        )

    def _may_write(self, login: str) -> bool:
        if login not in self._writers:
            self._writers[login] = False
            with suppress(NotFound):
                asked = f"{self._home}/collaborators/{quote(login, safe='')}/permission"
                found = told(self.api, HubPermission, "GET", asked)
                self._writers[login] = found.permission in _WRITES
        return self._writers[login]


class Gitea(GitHub):
    scheme = "token"

    def find(self, head: str) -> PullRequest | None:
        return self._own(rows(self.api, HubPull, f"{self._home}/pulls?state=open", or_null=False), head)

    def checks(self, commit: str) -> list[ForgeCheck]:
        return self._statuses(commit)

    def _of_lines(self, number: int) -> list[HubRemark]:
        reviews = rows(self.api, HubRemark, f"{self._home}/pulls/{number}/reviews")
        found = [
            rows(self.api, HubRemark, f"{self._home}/pulls/{number}/reviews/{one.id}/comments")
            for one in reviews
        ]
        return [comment for some in found for comment in some if not comment.resolver]


class GitLab:
    what = "merge request"
    scheme = "Bearer"

    def __init__(self, api: ForgeApi, slug: str) -> None:
        self.api = api
        self._home = f"projects/{quote(slug, safe='')}"
        self._writers: dict[int, bool] = {}

    def find(self, head: str) -> PullRequest | None:
        """As GitHub.find."""
        asked = f"{self._home}/merge_requests?state=opened&source_branch={quote(head, safe='')}"
        found = rows(self.api, LabRequest, asked, or_null=False)
        return next((self._told(one) for one in found if one.own and one.source_branch == head), None)

    def open(self, head: str, base: str, title: str, body: str) -> PullRequest:
        asked = {"source_branch": head, "target_branch": base, "title": title, "description": body}
        return self._told(told(self.api, LabRequest, "POST", f"{self._home}/merge_requests", asked))

    def update(self, number: int, base: str, body: str) -> PullRequest:
        asked = {"description": body} | ({"target_branch": base} if base else {})
        return self._told(told(self.api, LabRequest, "PUT", f"{self._home}/merge_requests/{number}", asked))

    def view(self, number: int) -> PullRequest:
        return self._told(told(self.api, LabRequest, "GET", f"{self._home}/merge_requests/{number}"))

    def _told(self, one: LabRequest) -> PullRequest:
        # Locked is one that is being merged.
        state = {"opened": OPEN, "locked": OPEN, "merged": MERGED}.get(one.state, CLOSED)
        sides = one.sha or "", one.target_branch
        return PullRequest(one.iid, one.web_url, state, *sides, one.description or "", one.own)

    def checks(self, commit: str) -> list[ForgeCheck]:
        found = rows(self.api, LabStatus, f"{self._home}/repository/commits/{commit}/statuses")
        return [
            ForgeCheck(
                one.name,
                PASSED if one.allow_failure else _status(one.status),
                one.description or "",
                one.target_url or "",
            )
            for one in found
        ]

    def comments(self, number: int) -> list[Comment]:
        self._writers.clear()  # as with GitHub
        found = []
        for one in rows(self.api, LabNote, f"{self._home}/merge_requests/{number}/notes"):
            if one.system or one.resolved:
                continue
            writes = not one.author.bot and self._may_write(one.author.id)
            path, line = (one.position.new_path, one.position.new_line) if one.position else ("", None)
            place = path or "", line, _plain(one.body), ""
            found.append(Comment(f"note-{one.id}", one.author.username, writes, *place))
        return found

    def _may_write(self, user: int) -> bool:
        if user not in self._writers:
            self._writers[user] = False
            with suppress(NotFound):
                found = told(self.api, LabMember, "GET", f"{self._home}/members/all/{user}")
                self._writers[user] = found.access_level >= _DEVELOPER
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
    port = None
    try:
        parts = urlsplit(url)
        if parts.scheme in ("http", "https", "ssh", "git"):
            host, path = parts.hostname or "", parts.path
            port = parts.port if parts.scheme == "https" else None
        elif parts.scheme or url.startswith(("/", ".")) or not (found := _SCP.fullmatch(url)):
            return None
        else:
            host, path = found["host"], found["path"]
    except ValueError:  # no such port, or half an address in brackets
        return None
    host, slug = host.lower(), path.strip("/").removesuffix(".git")
    return Place(_SSH_HOSTS.get(host, host), slug, port) if host and "/" in slug else None


def repository_of(url: str, setting: str) -> Place | None:
    """As `place_of`, without the folder that the pages of the forge lie below, which `setting` tells."""
    place, api = place_of(url), urlsplit(setting)
    below = api.path.strip("/").rpartition("api/v")[0]
    if place is None or not below or urlsplit(url).scheme not in ("http", "https"):
        return place
    return place._replace(slug=place.slug.removeprefix(below))


def forge_of(url: str, setting: str) -> Forge:
    """Of a remote's address; `setting` is the address of the forge's API where a person has named it.

    Raises NotFound, BadConfig, ForgeRefused.
    """
    place = repository_of(url, setting)
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
    port = f":{place.port}" if place.port else ""
    own = f"https://{place.host}{port}{kind.api_path}"
    usual = "https://api.github.com" if place.host == "github.com" else own
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
