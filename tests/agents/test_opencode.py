"""opencode as an agent: how it is started, and what its own words mean."""

from __future__ import annotations

import json
import math
import sqlite3
from contextlib import closing
from pathlib import Path

from factories import plain_job
from muster.agents.opencode import KIND, OpencodeAgent, OpencodeStream
from muster.config.settings import AgentConfig
from muster.model.limits import Limits
from muster.model.states import ErrorKind
from muster.ports.agent import AttemptFolder, Exit, Failed, SessionSeen


def fed(*lines: dict[str, object]) -> OpencodeStream:
    stream = OpencodeStream(None, Limits())
    stream.feed(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    return stream


def step(reason: str) -> dict[str, object]:
    tokens = {"input": 8, "output": 5, "reasoning": 1, "cache": {"read": 2, "write": 1}}
    return {
        "type": "step_finish",
        "sessionID": "ses_1",
        "part": {"reason": reason, "tokens": tokens, "cost": 0.5},
    }


def test_a_session_is_resumed_where_its_store_has_it(tmp_path: Path, folder: AttemptFolder) -> None:
    config = AgentConfig("o", ("sh",), permission_mode="edit", model="a/b", env={"HOME": str(tmp_path)})
    made = OpencodeAgent(config)
    job = plain_job(session_key="ses_1")
    fresh = made.launch(job, folder, cwd=tmp_path, extra_env={})
    assert (fresh.argv, fresh.session_key) == (("sh", "run", "--format", "json", "--model", "a/b"), None)
    allowed = json.loads(fresh.env["OPENCODE_PERMISSION"])
    assert (allowed["edit"], allowed["bash"]) == ("allow", "deny")
    store = tmp_path / ".local" / "share" / "opencode" / "opencode.db"
    store.parent.mkdir(parents=True)
    with closing(sqlite3.connect(store)) as kept:
        kept.execute("CREATE TABLE session (id TEXT)")
        kept.execute("INSERT INTO session VALUES ('ses_1')")
        kept.commit()
    resumed = made.launch(job, folder, cwd=tmp_path, extra_env={})
    assert resumed.argv[-2:] == ("--session", "ses_1")
    assert made.launch(plain_job(session_key="ses_2"), folder, cwd=tmp_path, extra_env={}).session_key is None


def test_steps_are_summed_up_and_the_last_one_must_be_the_end(folder: AttemptFolder) -> None:
    stream = fed(step("tool-calls"), step("stop"))
    assert stream.usage is not None
    assert (stream.usage.input_tokens, stream.usage.cached_tokens, stream.usage.output_tokens) == (22, 4, 12)
    assert stream.usage.cost_microusd == 1_000_000
    assert not stream.usage.estimated
    assert not isinstance(stream.outcome(Exit(code=0), folder), Failed)
    assert isinstance(fed(step("stop"), step("tool-calls")).outcome(Exit(code=0), folder), Failed)
    assert isinstance(fed().outcome(Exit(code=0), folder), Failed)


def test_answers_without_an_end_are_not_repeated_for_ever(folder: AttemptFolder) -> None:
    assert fed(step("unknown"), step("unknown"), step("stop"), step("unknown")).waiting is None
    stream = fed(step("unknown"), step("unknown"), step("unknown"))
    assert stream.waiting is not None
    assert stream.waiting.delay_s == math.inf, "it is ended at once"
    outcome = stream.outcome(Exit(code=-2, given_up=True), folder)
    assert isinstance(outcome, Failed)
    assert outcome.kind is ErrorKind.CRASH


def test_a_refusal_keeps_how_long_to_wait(folder: AttemptFolder) -> None:
    data = {"message": "no", "statusCode": 429, "responseHeaders": {"retry-after": "300"}}
    stream = fed(
        {"type": "error", "timestamp": 1_000_000, "sessionID": "s", "error": {"name": "E", "data": data}}
    )
    outcome = stream.outcome(Exit(code=1), folder)
    assert isinstance(outcome, Failed)
    assert (outcome.kind, outcome.reset_at_s) == (ErrorKind.QUOTA, 1300.0)


def test_its_session_is_named_once() -> None:
    line = json.dumps({"type": "text", "sessionID": "ses_1", "part": {"text": "x"}}).encode() + b"\n"
    assert OpencodeStream(None, Limits()).feed(line + line) == [SessionSeen("ses_1")]


def test_its_modes_are_those_of_init() -> None:
    assert set(KIND.levels.values()) <= set(KIND.modes)


def test_what_was_cut_off_may_have_cost_more_than_it_told() -> None:
    begins: dict[str, object] = {"type": "step_start", "sessionID": "ses_1", "part": {}}
    refused: dict[str, object] = {"type": "error", "error": {"name": "APIError", "data": {"message": "no"}}}
    for lines, estimated in (
        ([step("tool-calls")], True),
        ([step("tool-calls"), begins], True),
        ([step("unknown")], True),
        ([step("tool-calls"), begins, refused], False),
        ([step("length")], False),
    ):
        usage = fed(*lines).usage
        assert usage is not None and usage.estimated is estimated, lines
