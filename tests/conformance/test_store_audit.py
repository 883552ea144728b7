"""What every store promises of the audit: events, the seals on them, and how they are looked through."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from store_rows import NOW, Subject, make_event, make_task, new_task

from muster.model.events import Level
from muster.model.rows import DEFAULT_WORKSPACE, Workspace
from muster.model.seals import GENESIS, Seal, Signer
from muster.model.states import TaskStatus

SIGNER = Signer(b"k" * 32)
ELSEWHERE = 70


def numbered(subject: Subject, after_id: int = 0, to_id: int | None = None) -> list[Any]:
    found: list[Any] = subject.read("numbered_events", after_id, to_id, 100)
    return found


def seal_next(subject: Subject, count: int) -> Seal:
    last = subject.tx("last_seal")
    after_id, head = (last.to_id, last.head) if last else (0, GENESIS)
    seal = SIGNER.seal(numbered(subject, after_id)[:count], head, NOW.wall_ms)
    subject.tx("add_seal", seal)
    return seal


@pytest.mark.promise("S7")
def test_a_chain_of_seals_is_kept(subject: Subject) -> None:
    assert subject.tx("last_seal") is None and subject.read("oldest_kept_seal") is None
    subject.write(events=[make_event(1, number) for number in range(1, 7)])
    first, second = seal_next(subject, 2), seal_next(subject, 3)
    assert subject.tx("last_seal") == subject.read("last_seal") == second
    assert subject.read("seals", 0, 10) == [first, second]
    assert subject.read("seals", 0, 1) == [first]
    assert subject.read("seals", first.to_id, 10) == [second]
    assert subject.read("oldest_kept_seal") == first


@pytest.mark.promise("S7")
def test_only_a_sealed_range_is_pruned_and_its_stub_stays(subject: Subject) -> None:
    subject.write(events=[make_event(1, number) for number in range(1, 7)])
    first, second = seal_next(subject, 2), seal_next(subject, 3)
    assert subject.tx("prune_events", first.to_id + 1, 9, "signed") == 0, "no seal ends there"
    assert subject.tx("prune_events", first.to_id, 9, "signed") == 2
    assert subject.tx("prune_events", first.to_id, 9, "signed") == 0
    stub, kept = subject.read("seals", 0, 10)
    assert stub == replace(first, marks=b"", pruned_at_ms=9, pruned_proof="signed")
    assert kept == second == subject.read("oldest_kept_seal")
    assert [one.event.seq for one in numbered(subject)] == [3, 4, 5, 6]


def test_seals_and_events_are_each_workspaces_own(subject: Subject) -> None:
    subject.tx("add_workspace", Workspace(ELSEWHERE, "other", 5))
    other = subject.of(ELSEWHERE)
    subject.write(events=[make_event(1, 1)])
    other.write(events=[make_event(2, 1), make_event(2, 2)])
    seal_next(other, 2)
    assert subject.tx("last_seal") is None
    assert [one.event.task_id for one in numbered(subject)] == [1]
    assert [one.event.seq for one in numbered(other)] == [1, 2]
    assert other.read("last_event_id") > subject.read("last_event_id")


def test_numbered_events_come_back_whole(subject: Subject) -> None:
    event = make_event(1, 1, details='{"a": "ü"}', subject="worker w", message="späť", epoch=3)
    subject.write(events=[event, make_event(1, 2), make_event(1, 3)])
    (first, second, _) = numbered(subject)
    assert first.event == event
    assert numbered(subject, first.id, second.id) == [second]
    assert subject.read("numbered_events", 0, None, 1) == [first]


def test_events_are_counted_by_name_and_kind_of_failure(subject: Subject) -> None:
    failed = {"event": "failed", "previous_status": TaskStatus.RUNNING, "new_status": TaskStatus.FAILED}
    subject.write(
        events=[
            make_event(1, 1),
            make_event(1, 2, **failed, details='{"kind": "crash"}'),
            make_event(2, 1, **failed, details="{}"),
            make_event(2, 2, event="failed", previous_status=TaskStatus.FAILED, new_status=TaskStatus.FAILED),
        ]
    )
    last = subject.read("last_event_id")
    found = subject.read("event_counts", 0, last)
    assert sorted(found, key=str) == [
        ("failed", "", 1),
        ("failed", "crash", 1),
        ("failed", None, 1),
        ("noted", None, 1),
    ]
    assert sum(count for *_, count in subject.read("event_counts", last - 2, last - 1)) == 1


def test_spans_tell_which_events_of_a_task_are_there(subject: Subject) -> None:
    subject.add(*((new_task(number)[0], make_task(number, event_seq=2)) for number in (1, 2, 3)))
    subject.write(events=[make_event(1, 1), make_event(1, 2), make_event(3, 2)])
    spans = subject.read("event_spans", 0, 10)
    assert [(one.task_id, one.expected, one.first, one.last, one.count) for one in spans] == [
        (1, 2, 1, 2, 2),
        (2, 2, 0, 0, 0),
        (3, 2, 2, 2, 1),
    ]
    assert [one.task_id for one in subject.read("event_spans", 1, 1)] == [2]


def test_the_newest_events_are_told_oldest_first(subject: Subject) -> None:
    subject.write(events=[make_event(1, number) for number in range(1, 6)])
    assert [event.seq for event in subject.read("last_events", 1, 2)] == [4, 5]
    assert subject.read("last_events", 2, 2) == []


def test_the_audit_is_searched_by_task_level_time_and_subject(subject: Subject) -> None:
    subject.write(
        events=[
            make_event(1, 1, at_ms=10),
            make_event(1, 2, at_ms=20, level=Level.WARN),
            make_event(-1, 1, at_ms=30, level=Level.ERROR, subject="token 12"),
            make_event(-1, 2, at_ms=40, subject="tokens 3"),
        ]
    )

    def found(task_id: int | None = None, levels: Any = (), since_ms: int = 0, **more: Any) -> list[int]:
        asked = {"task_id": task_id, "levels": levels, "since_ms": since_ms, "limit": 2, **more}
        return [event.at_ms for event in subject.read("audit_events", **asked)]

    assert found() == [30, 40]
    assert found(task_id=1) == [10, 20]
    assert found(task_id=1, since_ms=11) == [20]
    assert found(levels=(Level.WARN, Level.ERROR)) == [20, 30]
    assert found(subjects=("token",)) == [30]
    assert found(subjects=("token 12", "tokens")) == [30, 40]
    assert found(subjects=("token 1",)) == []


def test_whose_a_row_is(subject: Subject) -> None:
    subject.tx("add_workspace", Workspace(ELSEWHERE, "other", 5))
    other = subject.of(ELSEWHERE)
    subject.add(new_task(1))
    other.add(new_task(2, workspace_id=ELSEWHERE, plan_id=None))
    assert subject.tx("workspace_of_tasks", [1, 2, 3]) == {1: DEFAULT_WORKSPACE, 2: ELSEWHERE}
    assert [subject.read("workspace_of", number) for number in (1, 2, 3)] == [1, ELSEWHERE, None]
    assert (subject.tx("elsewhere", [1, 2, 3]), other.tx("elsewhere", [1, 2, 3])) == ({2}, {1})
    subject.add_plan()
    assert subject.tx("workspace_of_plan", 900) == DEFAULT_WORKSPACE
    assert subject.tx("workspace_of_plan", 5) is None
