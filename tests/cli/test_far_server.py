"""The command line before a server elsewhere: nothing of the server's folder is at hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import muster
from cli_owner import Cli, Ran
from far_servers import SECRET, FarOwner, far_owner
from muster.cli.surface import surface
from muster.model.errors import BadInput, NotAllowed


@pytest.fixture
def far(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FarOwner]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    with far_owner(tmp_path / "elsewhere") as made:
        yield made
    assert not (root / ".muster").exists(), "nothing is begun where a command is given"


@pytest.fixture
def ask(cli: Cli, far: FarOwner) -> Callable[..., Ran]:
    def run(*words: str, **options: object) -> Ran:
        return cli(*words, env={"MUSTER_SERVER": far.url, "MUSTER_TOKEN": SECRET}, **options)

    return run


ASKED: tuple[tuple[str, int], ...] = (
    ("status", 0),
    ("doctor", 0),
    ("plan list", 0),
    ("plan show billing", 0),
    ("plan graph billing", 0),
    ("plan export billing", 0),
    ("plan pause billing", 0),
    ("plan resume billing", 0),
    ("plan tick billing", 0),
    ("plan diff new.md", 0),
    ("plan add new.md", 0),
    ("plan sync billing --status", 0),
    ("task list", 0),
    ("task show billing/api", 0),
    ("task add more --prompt true --agent shell", 0),
    ("task run more --wait 0s --agent shell", 8),
    ("task edit billing/docs --title Docs", 0),
    ("task next", 0),
    ("task pause billing/other", 0),
    ("task resume billing/other", 0),
    ("task depend billing/other --on billing/model", 0),
    ("task transfer billing/other --to shell", 0),
    ("task wait billing/model", 0),
    ("task accept billing/model", 6),
    ("answer billing/model yes", 6),
    ("dead list", 0),
    ("dead retry --all --dry-run", 0),
    ("dead discard --all --dry-run", 0),
    ("logs billing/tests", 0),
    ("attempt list billing/tests", 0),
    ("attempt show billing/tests", 0),
    ("artifact list billing/tests", 0),
    ("artifact get billing/tests none", 3),
    ("task retry billing/tests", 0),
    ("task skip billing/tests", 0),
    ("why billing/docs", 0),
    ("claim take billing/other", 0),
    ("claim list", 0),
    ("claim renew billing/other", 0),
    ("claim release billing/other", 0),
    ("task complete billing/other", 0),
    ("task archive billing/model", 0),
    ("task cancel billing/docs", 0),
    ("tell billing/api quick", 0),
    ("inbox", 0),
    ("budget billing 5", 0),
    ("worker list", 0),
    ("worker status", 0),
    ("worker show worker-abcdefgh", 0),
    ("worker stop worker-abcdefgh", 6),
    ("agent list", 0),
    ("agent allowed", 0),
    ("agent resume nobody", 3),
    ("orchestrator pause", 0),
    ("orchestrator resume", 0),
    ("orchestrator reconcile", 0),
    ("orchestrator status", 0),
    ("workspace list", 0),
    ("workspace create acme", 0),
    ("member list --workspace default", 0),
    ("member list --workspace acme", 4),
    ("member set bob --role VIEWER", 0),
    ("member list", 0),
    ("member remove bob", 0),
    ("token create ci --member ada", 0),
    ("token list", 0),
    ("token revoke 2", 3),
    ("secrets set GITHUB_TOKEN", 0),
    ("secrets list", 0),
    ("secrets delete GITHUB_TOKEN", 0),
    ("secrets rotate", 0),
    ("webhook add https://example.org/hook", 0),
    ("webhook list", 0),
    ("webhook messages 1", 3),
    ("webhook test 1", 3),
    ("webhook resend 1", 3),
    ("webhook remove 1", 3),
    ("notify list", 0),
    ("notify messages phone", 3),
    ("notify test phone", 3),
    ("notify resend phone", 3),
    ("audit list", 0),
    ("audit verify", 0),
    ("api GET /api/v1/whoami", 0),
    ("context show", 0),
    ("ui --no-open", 0),
    ("plan cancel billing", 0),
    ("plan forget billing", 6),
)
"""What a server does, in an order that works, with the exit code."""
REFUSED = (
    *("run new.md", "up", "serve", "down", "orchestrator start", "orchestrator stop"),
    *("plan from words", "plan merge billing"),
    *(
        "pr open billing",
        "pr status",
        "pr retry billing",
        "attempt diff billing/tests",
        "attach billing/tests",
    ),
    *("config show", "worktree list", "worktree clear"),
    *("agent show shell", "agent test shell"),
    *("db backup", "db check", "db migrate", "db adopt", "db copy", "db restored", "secrets reset"),
)
"""What works on files of a project's folder."""
OF_NO_SERVER = (
    *(
        "init",
        "demo",
        "login",
        "logout",
        "context list",
        "context use",
        "context delete",
        "config import",
    ),
    *(f"report {verb}" for verb in ("progress", "checkpoint", "artifact", "done", "fail", "ask")),
    *("completion", "man", "plan import", "plan check", "plan ids", "worker start", "watch"),
)
"""What asks none, or has a test of its own."""


def test_every_command_asks_the_server_or_says_where_it_works(ask: Callable[..., Ran], root: Path) -> None:
    (root / "new.md").write_text("# New\n\n- [ ] one agent=shell\n  true\n- [ ] two\n")
    wrong = [
        (words, ran)
        for words, code in ASKED
        if (ran := ask(*words.split(), stdin=b"a secret value")).code != code
    ]
    assert not wrong, "\n".join(map(str, wrong))
    for words in REFUSED:
        ran = ask(*words.split())
        assert (ran.code, ran.raw) == (2, b""), (words, ran)
        assert "works in a project's folder, and MUSTER_SERVER means http://127.0.0.1:" in ran.err, words
        assert "nothing was changed" in ran.err and "-C DIR" in ran.err
    known = {" ".join(one.path) for command in surface() for one in command.walk() if not one.verbs}
    told = {
        *OF_NO_SERVER,
        *(
            one
            for one in known
            for words in (*REFUSED, *(words for words, _ in ASKED))
            if words.startswith(one)
        ),
    }
    assert known == told, "each command is in one of these"


def test_programs_ask_the_server_as_the_command_line_does(
    far: FarOwner, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with muster.Client(server=far.url, token=SECRET) as client:
        handle = client.add("Log in", key="login", plan="auth")
        assert client.tasks(plan="auth")[0].id == handle.id == client.handle("auth/login").id
    with pytest.raises(NotAllowed):
        muster.Client(server=far.url, token="mst_wrong").status()
    with pytest.raises(BadInput):
        muster.Client(root, server=far.url)
    with pytest.raises(BadInput):
        muster.Client(server="muster.example")
    monkeypatch.setenv("MUSTER_SERVER", far.url)
    monkeypatch.setenv("MUSTER_TOKEN", SECRET)

    async def ask() -> list[str]:
        async with muster.AsyncClient() as client:
            await client.add("Log out", key="logout", plan="auth")
            return [task.key for task in await client.tasks(plan="auth")]

    assert asyncio.run(ask()) == ["login", "logout"]
