"""A command that has changed something, and cannot read how it stands after that."""

from __future__ import annotations

from typing import Any

import pytest

from cli_owner import Cli, Owner
from muster.cli import context
from muster.client.api import Api
from muster.model.errors import StoreAway

ADDS = ("task", "add", "One more", "--plan", "later", "--key", "one", "--prompt", "true")
EDITS = ("task", "edit", "billing/docs", "--priority", "9")


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often a task cannot be read once something was posted."""
    left: list[int] = []
    posted: list[str] = []
    get, post = Api.get, Api.post

    def heard(self: Api, path: str, *given: Any, **more: Any) -> Any:
        posted.append(path)
        return post(self, path, *given, **more)

    def asked(self: Api, path: str, *given: Any, **more: Any) -> Any:
        if posted and left and path.startswith("/api/v1/agent-tasks/"):
            left.pop()
            raise StoreAway("PostgreSQL does not answer; nothing was written", "it is tried again")
        return get(self, path, *given, **more)

    monkeypatch.setattr(Api, "post", heard)
    monkeypatch.setattr(Api, "get", asked)
    return left


@pytest.mark.parametrize(("argv", "done"), [(ADDS, "added"), (EDITS, "edited")])
def test_it_is_read_again(argv: tuple[str, ...], done: str, cli: Cli, owner: Owner, away: list[int]) -> None:
    away.append(1)
    ran = cli(*argv)
    assert (ran.code, away) == (0, []) and done in ran.out


@pytest.mark.parametrize(("argv", "done"), [(ADDS, "added"), (EDITS, "edited")])
def test_where_that_is_not_possible_it_says_what_was_done(
    argv: tuple[str, ...], done: str, cli: Cli, owner: Owner, away: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context, "AWAY_S", 0.0)
    away.append(1)
    ran = cli(*argv)
    assert ran.code == 7 and f"was {done}, and cannot be read now" in ran.err
    assert "nothing was written" not in ran.err and "muster task show" in ran.err


def test_a_claim_that_was_ended_is_told_by_how_it_ended(
    cli: Cli, owner: Owner, away: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context, "AWAY_S", 0.0)
    assert cli(*ADDS).code == 0
    assert cli("claim", "take", "later/one").code == 0
    posted_from_here_on = Api.post

    def ends(self: Api, path: str, *given: Any, **more: Any) -> Any:
        answer = posted_from_here_on(self, path, *given, **more)
        away.append(1)
        return answer

    monkeypatch.setattr(Api, "post", ends)
    ran = cli("claim", "release", "later/one", "--done")
    assert ran.code == 7 and "was completed, and cannot be read now" in ran.err
