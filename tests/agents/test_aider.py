"""aider as an agent: how it is started, and what its prose means."""

from __future__ import annotations

from pathlib import Path

import pytest

from factories import plain_job
from muster.agents.aider import KIND, AiderAgent, AiderStream
from muster.config.settings import AgentConfig
from muster.model.limits import Limits
from muster.model.states import ErrorKind
from muster.ports.agent import AttemptFolder, Completed, Exit, Failed, Step

GREETING = "Aider v0.86.2\nModel: x with whole edit format\nGit repo: none\nRepo-map: disabled\n\n"


def fed(text: str, size: int = 7) -> AiderStream:
    stream, data = AiderStream(None, Limits()), text.encode()
    for at in range(0, len(data), size):
        stream.feed(data[at : at + size])
    return stream


def test_its_chat_is_kept_and_taken_up_again(tmp_path: Path, folder: AttemptFolder) -> None:
    made = AiderAgent(AgentConfig("a", ("sh",), permission_mode="ask", env={"HOME": str(tmp_path / "home")}))
    (tmp_path / "tree").mkdir()
    (tmp_path / ".git").mkdir()  # empty: no repository
    fresh = made.launch(plain_job(model="o/m"), folder, cwd=tmp_path / "tree", extra_env={})
    assert fresh.argv[1:6] == ("--message-file", "/dev/stdin", "--yes-always", "--chat-mode", "ask")
    assert fresh.argv[-3:] == ("--model", "o/m", "--no-git"), "where there is no repository it makes none"
    chat = Path(fresh.argv[fresh.argv.index("--chat-history-file") + 1])
    assert chat == tmp_path / "home" / ".aider" / "muster" / f"{fresh.session_key}.md"
    chat.write_text("kept")
    (tmp_path / ".git" / "HEAD").touch()
    job = plain_job(session_key=fresh.session_key)
    resumed = made.launch(job, folder, cwd=tmp_path / "tree", extra_env={})
    assert "--restore-chat-history" in resumed.argv
    assert "--no-git" not in resumed.argv


def test_an_answer_and_what_it_cost(folder: AttemptFolder) -> None:
    said = (
        "a.txt\n\nDone.\nTokens: 2.3k sent, 1k cache hit, 10 received. Cost: $0.01 message, $0.01 session.\n"
    )
    stream = fed(f"{GREETING}{said}Applied edit to a.txt\n")
    assert stream.outcome(Exit(code=0), folder) == Completed(
        result=b'{"text":"a.txt\\n\\nDone."}', spoken=True
    )
    usage = stream.usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens, usage.cost_microusd, usage.estimated) == (
        2300,
        10,
        10_000,
        True,
    )
    assert AiderStream(None, Limits()).feed(b"Applied edit to a.txt\n") == [Step("edit: a.txt")]


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("litellm.AuthenticationError: wrong key\n", ErrorKind.AUTH),
        ("litellm.RateLimitError: Too\nmany\nRetrying in 0.2 seconds...\n", ErrorKind.RATE_LIMIT),
        ("litellm.BadRequestError: X - Your credit \nbalance is too low\n", ErrorKind.BILLING),
        ("litellm.NotFoundError: no such model\n", ErrorKind.INVALID),
        ("litellm.InternalServerError: broken\n", ErrorKind.RATE_LIMIT),
        ("", ErrorKind.CRASH),
    ],
)
def test_exit_code_0_is_no_success_by_itself(folder: AttemptFolder, said: str, kind: ErrorKind) -> None:
    outcome = fed(GREETING + said).outcome(Exit(code=0), folder)
    assert isinstance(outcome, Failed)
    assert outcome.kind is kind, outcome


def test_a_refusal_that_was_got_over_does_not_count(folder: AttemptFolder) -> None:
    said = "litellm.RateLimitError: wait\nRetrying in 0.2 seconds...\nDone.\nTokens: 5 sent, 2 received.\n"
    assert isinstance(fed(GREETING + said).outcome(Exit(code=0), folder), Completed)


def test_its_modes_are_those_of_init() -> None:
    assert set(KIND.levels.values()) <= set(KIND.modes)
