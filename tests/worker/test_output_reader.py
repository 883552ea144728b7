"""Who prints without end is listened to, and watched all the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from muster.agents.reports import reports_in
from muster.model import commands as c
from muster.model.answers import ClaimedJob, Moved
from muster.model.states import ErrorKind, TaskStatus
from muster.model.usage import Usage
from muster.ports.agent import Failed, Retrying
from muster.worker import output_reader
from muster.worker.ends import End
from muster.worker.output_reader import OWN_TRIES_S, OutputReader

JOB: dict[str, Any] = dict.fromkeys(ClaimedJob.__struct_fields__[:10], "") | {"task_id": 1, "epoch": 1}
JOB |= {"timeout_s": 60, "checkpoint": None}


class Endless:
    """Understands slower than the agent prints: after each part there is another one."""

    usage = session_usage = waiting = None
    costs = ended = answered = False

    def __init__(self, stdout: Path) -> None:
        self._stdout = stdout
        self.heard = 0

    def feed(self, data: bytes) -> list[Any]:
        self.heard += len(data)
        with self._stdout.open("ab") as file:
            file.write(b"x" * 1000)
        return []


def test_a_flood_does_not_keep_the_worker_from_watching(tmp_path: Path) -> None:
    stdout = tmp_path / "stdout"
    stdout.touch()
    stream: Any = Endless(stdout)
    job: Any = ClaimedJob(**JOB)
    output_reader = OutputReader(job, stdout, stream, None)
    stdout.write_bytes(b"begins")
    for _ in range(3):
        before = stream.heard
        output_reader.listen()
        assert stream.heard > before


class Refused:
    """A CLI whose provider refuses it for as long as the test says."""

    usage = session_usage = None
    costs = ended = answered = False
    waiting: Retrying | None = None

    def feed(self, data: bytes) -> list[Any]:
        return []


class Told:
    """What the owner hears; it answers that another one tries where the test says so."""

    def __init__(self) -> None:
        self.words: list[ErrorKind | None] = []
        self.gives_way = False

    def __call__(self, command: c.AttemptCommand) -> Moved:
        if isinstance(command, c.Provider):
            self.words.append(command.refuses)
        return Moved(task_id=1, status=TaskStatus.RUNNING, epoch=1, generation=1, gives_way=self.gives_way)


class Refusals:
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, **job: Any) -> None:
        self.now_s = 1000.0
        monkeypatch.setattr(output_reader.time, "monotonic", lambda: self.now_s)
        self.stream, self.told, self._stdout = Refused(), Told(), folder / "stdout"
        self._stdout.touch()
        self.reader = OutputReader(ClaimedJob(**JOB, **job), self._stdout, cast(Any, self.stream), None)

    def look(self) -> bool:
        """Whether it is to be ended."""
        with self._stdout.open("ab") as file:
            file.write(b".")
        self.reader.listen()
        self.reader.tell(self.told)
        return self.reader.refused

    def refuse(self, tries: int, delay_s: float = 0.0, kind: ErrorKind = ErrorKind.RATE_LIMIT) -> bool:
        failed = Failed(kind=kind, message="no")
        self.stream.waiting = Retrying(refusal=failed, tries=tries, delay_s=delay_s)
        return self.look()


@pytest.fixture
def refusals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Refusals:
    return Refusals(tmp_path, monkeypatch)


def test_a_cli_tries_by_itself_for_a_minute(refusals: Refusals) -> None:
    assert not refusals.refuse(1)
    assert refusals.told.words == [], "a single refusal is nothing"
    refusals.now_s += OWN_TRIES_S - 30
    assert not refusals.refuse(5)
    assert not refusals.refuse(6)
    assert refusals.told.words == [ErrorKind.RATE_LIMIT], "told once"
    refusals.now_s += 30
    assert not refusals.look()
    refusals.now_s += 0.1
    assert refusals.look()


def test_a_wait_that_would_last_longer_than_the_minute_is_not_begun(refusals: Refusals) -> None:
    assert not refusals.refuse(1, delay_s=30)
    refusals.now_s += 30
    assert refusals.refuse(2, delay_s=31)


def test_who_is_answered_says_so_and_has_another_minute(refusals: Refusals) -> None:
    refusals.refuse(2)
    refusals.now_s += OWN_TRIES_S - 1
    refusals.stream.waiting, refusals.stream.answered = None, True
    assert not refusals.look()
    assert refusals.told.words == [ErrorKind.RATE_LIMIT, None]
    refusals.now_s += 100
    assert not refusals.refuse(2)
    assert refusals.told.words == [ErrorKind.RATE_LIMIT, None, ErrorKind.RATE_LIMIT]


def test_who_is_to_give_way_ends_and_one_that_was_answered_meanwhile_does_not(refusals: Refusals) -> None:
    refusals.told.gives_way = True
    assert refusals.refuse(2)
    refusals.stream.waiting, refusals.stream.answered = None, True
    assert not refusals.look()


def test_a_refused_login_is_tried_once_more(refusals: Refusals) -> None:
    assert not refusals.refuse(1, kind=ErrorKind.AUTH)
    assert refusals.refuse(2, kind=ErrorKind.AUTH)


def test_what_is_no_refusal_is_the_clis_own_business(refusals: Refusals) -> None:
    refusals.refuse(2, kind=ErrorKind.CRASH)
    refusals.now_s += 1000
    assert not refusals.refuse(9, kind=ErrorKind.CRASH)
    assert refusals.told.words == []


def test_who_tries_for_others_says_when_it_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals = Refusals(tmp_path, monkeypatch, tries=True)
    refusals.refuse(2)
    assert refusals.told.words == [], "they wait already"
    refusals.stream.waiting, refusals.stream.answered = None, True
    refusals.look()
    refusals.look()
    assert refusals.told.words == [None]


def test_who_tries_for_others_and_tells_nothing_is_served_after_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals = Refusals(tmp_path, monkeypatch, tries=True)
    refusals.now_s += OWN_TRIES_S
    refusals.look()
    assert refusals.told.words == []
    refusals.now_s += 1
    refusals.look()
    assert refusals.told.words == [None]


class Spends(Refused):
    usage: Usage | None = None  # type: ignore[assignment]
    costs = True

    def close(self) -> None:
        """It has told all."""


@pytest.mark.parametrize(("by_itself", "told"), [(True, [Usage()]), (False, [])])
@pytest.mark.parametrize("spent", [None, Usage(input_tokens=5)])
def test_a_cli_that_ended_by_itself_unanswered_has_cost_nothing(
    tmp_path: Path, by_itself: bool, told: list[Usage], spent: Usage | None
) -> None:
    (tmp_path / "stdout").touch()
    reader = OutputReader(
        ClaimedJob(**JOB),
        tmp_path / "stdout",
        cast(Any, Spends()),
        None,
        spent=spent,
        guest=spent is not None,
    )
    reader.close(by_itself=by_itself)
    sent: list[Any] = []
    reader.tell(sent.append, last=True)
    assert [word.usage for word in sent if word.usage] == ([spent] if told and spent else told)


def test_a_signal_that_a_cli_has_heard_and_told_by_its_code_ended_it() -> None:
    """It may have asked its model just then."""
    assert [code for code in (None, 0, 1, 127, 128 + 15, 128 + 9, -9) if End(code).by_itself] == [0, 1, 127]


def test_a_cost_is_an_estimate_until_its_process_has_ended(tmp_path: Path) -> None:
    stream, stdout, told = Spends(), tmp_path / "stdout", []
    stdout.touch()

    def account(command: c.AttemptCommand) -> None:
        assert isinstance(command, c.Account)
        told.append(command.usage)

    reader = OutputReader(ClaimedJob(**JOB), stdout, cast(Any, stream), "a-session")
    reader.tell(account)
    reader.tell(account)
    assert told == [], "the attempt has begun with an estimate: a worker that dies now cannot say more"
    stream.usage = Usage(input_tokens=9)
    reader.tell(account)
    assert told == [Usage(input_tokens=9, estimated=True)]
    reader.close()
    reader.tell(account, last=True)
    assert told[1:] == [Usage(input_tokens=9)]


def test_a_line_of_a_message_decides_on_a_file_of_a_merge(tmp_path: Path) -> None:
    stdout = tmp_path / "stdout"
    stdout.touch()
    stream: Any = Refused()
    stream.feed = lambda data: reports_in(data.decode())
    output_reader = OutputReader(ClaimedJob(**JOB), stdout, stream, None)
    stdout.write_bytes(b"It is mine.\n`muster: keep a folder/pkg.bin`\nmuster: progress 40 on\n")
    output_reader.listen()
    sent: list[Any] = []
    output_reader.tell(sent.append, last=True)
    assert output_reader.decided == ["a folder/pkg.bin"]
    assert [type(word) for word in sent] == [c.Progress]
