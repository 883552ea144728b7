"""What a task gives its agent to work with, in a file that the agent reads."""

from __future__ import annotations

from pathlib import Path

from real_crew import crew

from factories import plain_job
from muster.agents.inputs import INPUT_CHARS_MAX, input_text
from muster.ports.agent import AttemptFolder
from patience import until

AGENT = """\
[agents.reader]
command = ["sh", "-c", 'cat "$MUSTER_INPUT_CONTEXT_FILE" > "$MUSTER_RESULT"; printf %s "$0" | grep -q input.json']
"""


def test_an_agent_reads_what_it_was_given(tmp_path: Path) -> None:
    (tmp_path / "muster.toml").write_text(AGENT)
    given = {"repository": "u-connect", "scope": ["packages/shared"], "deep": {"ä": [1, None]}}
    with crew(tmp_path, "owner", "worker") as (api, _):
        task = {"title": "Fix it", "inputContext": given, "actor": "ada", "maxRetries": 0}
        number = api.post("/api/v1/agent-tasks", task)["id"]
        one = f"/api/v1/agent-tasks/{number}"
        until(lambda: api.get(one)["task"]["status"] in {"COMPLETED", "FAILED"}, "its agent has read it")
        detail = api.get(one)
        assert detail["task"]["status"] == "COMPLETED", detail["task"]["error"]
        assert detail["outputResult"] == given
        (file,) = tmp_path.glob(".muster/attempts/*/*/input.json")
        assert file.stat().st_mode & 0o777 == 0o600


def test_an_agent_that_may_not_read_it_there_is_told(tmp_path: Path) -> None:
    folder = AttemptFolder(path=tmp_path)
    assert input_text(plain_job(), folder) == ""
    assert str(folder.input_context) in input_text(plain_job(input_context={"a": 1}), folder)
    assert '"a": 1' in input_text(plain_job(input_context={"a": 1}), folder, reads_all=False)
    long = input_text(plain_job(input_context={"a": "x" * INPUT_CHARS_MAX}), folder, reads_all=False)
    assert len(long) < INPUT_CHARS_MAX + 500 and str(folder.input_context) in long
