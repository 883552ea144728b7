"""The branch of a pull request on its way to the remote: never with force, and with the remote's own words where
it is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from muster.app.pull_request_targets import Target
from muster.hosts.user_git import UserGit, said, text_of, without_logins
from muster.model.errors import Conflict, MusterError, NotFound, Unavailable
from muster.model.file_names import readable
from muster.outbound.forges import repository_of

SAID_CHARS_MAX = 1200
_NO_NETWORK = re.compile(
    "Could not resolve host|Failed to connect|Connection (?:refused|timed out|reset)|unreachable|timed out"
)
_UNPUSHED = "nothing was pushed"


def remote_of(git: UserGit, wanted: str) -> str:
    """The one that is named, that of the branch one is on, or origin.  Raises NotFound."""
    upstream = git.setting(f"branch.{git.branch()}.remote") if git.branch() else ""
    name = wanted or (upstream if upstream != "." else "") or "origin"
    if git.ask("remote", "get-url", "--", name).returncode:
        shown = without_logins(name)  # it may be an address
        raise NotFound(
            f"this repository has no remote {shown}; nothing was pushed",
            f"git remote add {shown} URL, or --remote NAME",
        )
    return name


def url_of(git: UserGit, remote: str, setting: str) -> str:
    """Where it is read from, by which its forge is known.  Raises Conflict where it is pushed to another one."""
    url = text_of(git.ask("remote", "get-url", "--", remote).stdout)
    there = repository_of(url, setting)
    pushed = text_of(git.ask("remote", "get-url", "--push", "--all", "--", remote).stdout).splitlines()
    others = [other for other in (repository_of(one, setting) for one in pushed) if other is not None]
    if there is None or not others:
        return url
    if all(other.slug.casefold() != there.slug.casefold() for other in others):
        raise Conflict(
            f"{remote} is read from {there.slug} and pushed to {others[0].slug}, and a request from one "
            "repository into another is not opened; nothing was pushed",
            f"--remote NAME of one that is both, or git remote set-url --push {remote} URL",
        )
    return url


def refuse_brought(git: UserGit, target: Target, tip: str, where: str, *, is_open: bool) -> None:
    """Raises Conflict where the branch that it goes into, which stands at `tip`, has all of it already."""
    if not tip:
        return
    has = git.ask("merge-base", "--is-ancestor", target.commit, tip).returncode == 0
    # It may have been squashed, or rebased: then none of its commits is there, and all that they change.
    if has or (not is_open and _brings_nothing(git, target.commit, tip)):
        raise Conflict(f"{where} has all of {target.branch}; nothing was pushed", f"muster why {target.ref}")


def _brings_nothing(git: UserGit, commit: str, tip: str) -> bool:
    merged = git.ask("merge-tree", "--write-tree", "--no-messages", tip, commit)
    return merged.returncode == 0 and text_of(merged.stdout) == git.run("rev-parse", f"{tip}^{{tree}}")


def push(git: UserGit, remote: str, target: Target) -> bool:
    """Whether the remote has got anything by it.  Raises Conflict, Unavailable."""
    words = ("--porcelain", "--no-follow-tags", "--recurse-submodules=no")
    done = git.ask("push", *words, "--", remote, f"{target.commit}:refs/heads/{target.branch}")
    lines = text_of(done.stdout).splitlines()
    if done.returncode == 0:
        return not any(line.startswith("=") for line in lines)
    if any("(non-fast-forward)" in line or "(fetch first)" in line for line in lines):
        raise Conflict(
            f"{target.branch} of {remote} has commits that yours has not; nothing was pushed, and never by force",
            f"git fetch {remote} && git switch {target.branch} && git merge {remote}/{target.branch}; "
            "git switch -",
        )
    refused = [line.split("\t")[-1] for line in lines if line.startswith("!")]
    why = _why(refused, text_of(done.stderr)) if refused else said(done)
    if not refused and _NO_NETWORK.search(why):
        raise Unavailable(f"git push to {remote} failed: {why}", "the same once more")
    by_hand = f"git push {remote} {target.commit[:12]}:refs/heads/{target.branch}"
    raise Conflict(f"git push to {remote} failed: {why}", by_hand)


def _why(refused: list[str], told: str) -> str:
    """What git says of it, and then the remote, whose rules and hooks know the reason."""
    remarks = [
        line.removeprefix("remote:").strip() for line in told.splitlines() if line.startswith("remote:")
    ]
    words = " ".join(filter(None, remarks))
    cut = words if len(words) <= SAID_CHARS_MAX else f"{words[:SAID_CHARS_MAX]}..."
    why = " ".join(refused) + (f"; the remote says: {cut}" if cut else "")
    return f"{without_logins(readable(why))}; {_UNPUSHED}"


@contextmanager
def telling_pushed(branch: str, remote: str, *, new: bool) -> Iterator[None]:
    """What fails within says as well that the branch is at the remote already."""
    done = f"was pushed to {remote} before that, and stays there" if new else f"was at {remote} before"
    with _telling(f"branch {branch} {done}"):
        yield


@contextmanager
def telling_unpushed() -> Iterator[None]:
    with _telling(_UNPUSHED):
        yield


@contextmanager
def _telling(more: str) -> Iterator[None]:
    try:
        yield
    except MusterError as error:
        if _UNPUSHED not in error.message:
            error.message = f"{error.message}; {more}"
        raise
