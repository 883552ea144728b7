"""What is handed over where no session can be resumed, and how agents report in their words."""

from __future__ import annotations

from pathlib import Path

import pytest

from factories import plain_job
from muster.agents.claude_code import KIND
from muster.agents.handover import hand_over
from muster.agents.reports import how_to_report, reports_in
from muster.agents.transcript import Reader
from muster.app.settings import KINDS
from muster.config.settings import AgentConfig
from muster.ports.agent import AttemptFolder, Reported

STREAMS = Path(__file__).parent / "streams"


def test_checkpoint_diff_and_the_end_of_what_was_said(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "stdout").write_bytes((STREAMS / "claude-code.tools.jsonl").read_bytes())
    (tmp_path / "2").mkdir()  # it has printed nothing
    job = plain_job(epoch=3, checkpoint=b"page 12", diff="+new line")
    assert KIND.entries is not None
    text = hand_over(
        job, AttemptFolder(path=tmp_path / "3"), "Do it.\n\nNote: tabs.", lambda: Reader((KIND.entries,))
    )
    titles = [line for line in text.splitlines() if line.startswith("# ")]
    assert [title[2:20] for title in titles] == [
        "The task",
        "The last checkpoin",
        "What has been chan",
        "What earlier attem",
    ]
    for known in ("Note: tabs.", "page 12", "+new line", "(attempt 1)", "> Bash: cat made.txt", "I made it."):
        assert known in text


@pytest.mark.parametrize(("kind", "level"), [("aider", "all"), ("letta", "edit"), ("gemini", "edit")])
def test_who_may_not_read_the_file_is_told_what_is_in_it(tmp_path: Path, kind: str, level: str) -> None:
    known = KINDS[kind]
    config = AgentConfig("a", ("sh",), permission_mode=known.levels[level], env={"HOME": str(tmp_path)})
    folder = AttemptFolder(path=tmp_path / "3")
    job = plain_job(epoch=3, prompt="Do it.", checkpoint=b"page 12", diff="+new line\n" + "+more\n" * 10_000)
    known.make(config).launch(job, folder, cwd=tmp_path, extra_env={})
    told = folder.prompt.read_text()
    assert "page 12" in told and "+new line" in told and str(folder.hand_over) not in told
    assert told.count("Do it.") == 1 and len(told) < 30_000
    assert len(folder.hand_over.read_text()) > 50_000, "people have all of it"


def test_there_is_nothing_to_hand_over_where_nothing_was_left(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    made: list[Reader] = []

    def reader() -> Reader:
        made.append(Reader())
        return made[-1]

    assert hand_over(plain_job(epoch=2), AttemptFolder(path=tmp_path / "2"), "Do it.", reader) == ""
    assert not made, "it takes the code of all kinds"


def test_a_link_in_the_place_of_its_output_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret\n")
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "stdout").symlink_to(tmp_path / "secret")
    assert hand_over(plain_job(epoch=2), AttemptFolder(path=tmp_path / "2"), "Do it.", Reader) == ""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Well.\nmuster: ask blue or green?\n", [Reported("ask", "blue or green?")]),
        ("`muster: progress 40 reading`", [Reported("progress", "40 reading")]),
        ("- **Muster: checkpoint page 12**", [Reported("checkpoint", "page 12")]),
        ("I may write muster: ask QUESTION to ask.", []),
        ("muster: ask", []),
        ("muster: delete everything", []),
    ],
)
def test_only_whole_lines_are_reports(text: str, found: list[Reported]) -> None:
    assert reports_in(text) == found


def test_the_way_to_report_is_one_that_its_mode_allows() -> None:
    assert "muster report ask" in how_to_report(tools=False, commands=True, notice="")
    assert "not use git stash" in how_to_report(tools=False, commands=True, notice="", branch=True)
    with_tools = how_to_report(tools=True, commands=True, notice="/x/notice")
    assert "`ask` of the MCP server `muster`" in with_tools
    assert "muster report" not in with_tools
    told = how_to_report(tools=False, commands=False, notice="/x/notice")
    assert "muster report" not in told
    assert "/x/notice" in told
    assert len(told.splitlines()) == 2
