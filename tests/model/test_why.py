"""A sentence for every situation of a task."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from muster.model.pools import Pool
from muster.model.secrets import not_set
from muster.model.states import (
    AttemptStatus,
    CrewStatus,
    ErrorKind,
    FailedDependency,
    PauseReason,
    TaskStatus,
)
from muster.model.views import TaskView
from muster.model.why import CrewFacts, OfflineProgram, clock_word, duration, reason, why
from muster.model.wording import FOR_YOU

NOW_MS = 1_000_000
T, A, K = TaskStatus, AttemptStatus, ErrorKind

UNFIT = {"gone": "no such file: gone"}
BUSY_CREW = CrewFacts(NOW_MS, CrewStatus.RUNNING, {"": 2, "claude": 0, "codex": 2}, UNFIT)


def view(status: TaskStatus, **changes: Any) -> TaskView:
    plain = TaskView(
        id=7,
        plan="api",
        key="a",
        title="t",
        description="",
        status=status,
        priority=5,
        generation=1,
        epoch=0,
        seq=1,
        unmet=0,
        next_attempt_at_ms=None,
        max_retries=3,
        retries=0,
        losses=0,
        percent=0,
        step="",
        error_kind=None,
        error="",
        wanted_agent=None,
        epic="",
        feature="",
        created_at_ms=0,
        updated_at_ms=0,
        started_at_ms=None,
        ended_at_ms=None,
        paused_reason=None,
        question="",
        pinned_agent=None,
        expires_at_ms=None,
        on_failed=FailedDependency.BLOCK,
        limit_key=None,
        capabilities=(),
        profile=None,
        tags=(),
        metadata={},
        parent_task_id=None,
        worker=None,
        agent=None,
        attempt_status=None,
    )
    return replace(plain, **changes)


def crew(**changes: Any) -> CrewFacts:
    return replace(BUSY_CREW, **changes)


HELD = {"worker": "worker-aaaaaaaa", "agent": "claude", "epoch": 2}
PAST_DUE = {"next_attempt_at_ms": NOW_MS - 3_000, "error": "boom"}
RATE_LIMITED = Pool(kind=K.RATE_LIMIT, reason="boom", since_ms=0, until_ms=NOW_MS + 3_000, task=7)
DUE = {"next_attempt_at_ms": NOW_MS + 3_000, "error": "boom"}

SENTENCES: list[tuple[TaskView, CrewFacts, str]] = [
    (view(T.PENDING, unmet=1, waits_for=("b",)), BUSY_CREW, "waits for b"),
    (
        view(T.PENDING, unmet=5, waits_for=("b", "c (FAILED)", "d")),
        BUSY_CREW,
        "waits for b, c (FAILED), d and 2 more",
    ),
    (
        view(T.ABORTED, **DUE, retries=1, error_kind=K.CRASH),
        BUSY_CREW,
        "retry in 3 s, run 1 of 4 failed: boom",
    ),
    (
        view(T.ABORTED, **DUE, error_kind=K.LOST),
        crew(now_ms=NOW_MS + 3_000),
        "retry is due, its holder was lost: boom",
    ),
    (
        view(T.PENDING, error_kind=K.RATE_LIMIT, wanted_agent="claude"),
        crew(closed={"claude": ("anthropic", RATE_LIMITED)}, utc_offset_s=7200),
        "waits for anthropic (until 02:16): boom; `muster agent resume claude` tries it now",
    ),
    (
        view(T.PENDING),
        crew(
            usual=frozenset({"claude"}),
            closed={"claude": ("anthropic", RATE_LIMITED)},
            crew=CrewStatus.STOPPED,
        ),
        "waits for anthropic (until 00:16): boom; `muster agent resume claude` tries it now; "
        "the crew is stopped: `muster up` goes on",
    ),
    (
        view(T.PENDING, wanted_agent="claude"),
        crew(closed={"claude": ("anthropic", replace(RATE_LIMITED, until_ms=NOW_MS, epoch=3))}),
        "waits for anthropic, another task tries whether it answers: boom; "
        "`muster agent resume claude` lets all try now",
    ),
    (view(T.PENDING), crew(crew=CrewStatus.STOPPED), "the crew is stopped: `muster up` goes on"),
    (view(T.PENDING), crew(free={}, unfit={}), "no worker is up: `muster up` starts some"),
    (
        view(T.PENDING),
        crew(free={}, unfit={}, starts_workers=False),
        "no worker is up: `muster worker start --server URL` starts some",
    ),
    (view(T.PENDING, wanted_agent="gone"), BUSY_CREW, "agent gone cannot run: no such file: gone"),
    (
        view(T.PENDING, wanted_agent="rust"),
        BUSY_CREW,
        "no worker offers agent rust: add [agents.rust] to muster.toml and start the crew anew, "
        "or start the app rust",
    ),
    (view(T.PENDING), crew(free={}, unfit={"": "codex cannot run: gone"}), "agent codex cannot run: gone"),
    (
        view(T.PENDING),
        crew(free={"codex": 2}),
        "it names no agent and there is none for such tasks: set `agent` in muster.toml",
    ),
    (view(T.PENDING, wanted_agent="claude"), BUSY_CREW, "waits for a free worker"),
    (view(T.PENDING), crew(free={"": 0}), "waits for a free worker"),
    (view(T.PENDING), BUSY_CREW, "ready, a worker takes it now"),
    (view(T.ASSIGNED, **HELD), BUSY_CREW, "starting on worker-aaaaaaaa with agent claude"),
    (view(T.RUNNING, **HELD), BUSY_CREW, "running on worker-aaaaaaaa with agent claude"),
    (
        view(T.RUNNING, **HELD, percent=40, step="tests"),
        BUSY_CREW,
        "running on worker-aaaaaaaa with agent claude, 40 % tests",
    ),
    (
        view(T.RUNNING, **HELD, attempt_status=A.STOPPING),
        BUSY_CREW,
        "is being stopped on worker-aaaaaaaa with agent claude",
    ),
    (view(T.PAUSED), BUSY_CREW, "paused by a person"),
    (view(T.COMPLETED, epoch=2, attempt_status=A.COMPLETED), BUSY_CREW, "done by attempt 2"),
    (view(T.COMPLETED), BUSY_CREW, "done by a person"),
    (view(T.COMPLETED, epoch=2, attempt_status=A.FAILED), BUSY_CREW, "done by a person"),
    (
        view(T.FAILED, losses=5, error_kind=K.LOST, error="gone"),
        BUSY_CREW,
        "lost 5 times, so it is not given out again: gone",
    ),
    (
        view(T.FAILED, losses=1, error_kind=K.LOST, error="gone"),
        BUSY_CREW,
        "lost 1 time, so it is not given out again: gone",
    ),
    (
        view(T.FAILED, losses=5, error_kind=K.CRASH, error="x", done_epoch=2),
        BUSY_CREW,
        "attempt 2 is done, but its work could not be published 5 times: x; the work is kept (`muster attempt "
        "diff api/a#2`), `muster task retry` publishes it",
    ),
    (view(T.FAILED, error_kind=K.INVALID, error="400"), BUSY_CREW, "failed for good: 400"),
    (view(T.FAILED, error_kind=K.CRASH, error="x"), BUSY_CREW, "failed after 1 run: x"),
    (view(T.FAILED, retries=3, error_kind=K.CRASH, error="x"), BUSY_CREW, "failed after 4 runs: x"),
    (view(T.CANCELLED), BUSY_CREW, "cancelled"),
    (view(T.ARCHIVED), BUSY_CREW, "archived"),
]


@pytest.mark.parametrize(("task", "facts", "sentence"), SENTENCES, ids=[s for *_, s in SENTENCES])
def test_the_sentence(task: TaskView, facts: CrewFacts, sentence: str) -> None:
    assert why(task, facts) == sentence


def test_every_status_has_one() -> None:
    assert {task.status for task, *_ in SENTENCES} == set(TaskStatus)
    assert all(why(view(status), BUSY_CREW) for status in TaskStatus)


@pytest.mark.parametrize("kind", sorted(set(ErrorKind) - {ErrorKind.EXPIRED}))
def test_every_kind_of_failure_is_told_while_waiting_and_in_the_end(kind: ErrorKind) -> None:
    for status in (T.ABORTED, T.FAILED):
        assert "boom" in why(view(status, **DUE, error_kind=kind), BUSY_CREW)


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (-5, "0 s"),
        (0, "0 s"),
        (3_400, "3 s"),
        (99_400, "99 s"),
        (99_600, "2 min"),
        (3_600_000, "60 min"),
        (7_200_000, "2 h"),
    ],
)
def test_durations_have_two_digits(ms: int, text: str) -> None:
    assert duration(ms) == text


LIMITED = replace(
    BUSY_CREW,
    free={"": 2, "claude": 0, "codex": 2},
    capabilities={"claude": frozenset({"rust", "gpu"}), "codex": frozenset({"go"})},
    general=frozenset({"codex"}),
    full_limits={"push": 2},
)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"capabilities": ("rust",)}, "waits for a free worker"),
        ({"capabilities": ("go",)}, "ready, a worker takes it now"),
        (
            {"capabilities": ("perl",)},
            "no agent offers perl: add it to agents.NAME.capabilities in muster.toml",
        ),
        (
            {"capabilities": ("go", "gpu")},
            "no agent offers go and gpu: add it to agents.NAME.capabilities in muster.toml",
        ),
        (
            {"capabilities": ("go", "gpu"), "pinned_agent": "codex"},
            "agent codex does not offer gpu: add it to agents.codex.capabilities in muster.toml",
        ),
        ({"limit_key": "push"}, "waits for its turn: 2 of 2 tasks of limit push run already"),
        ({"limit_key": "other"}, "ready, a worker takes it now"),
        ({"pinned_agent": "claude"}, "waits for a free worker"),
        (
            {"pinned_agent": "ghost"},
            "no worker offers agent ghost: add [agents.ghost] to muster.toml and start the crew anew, "
            "or start the app ghost",
        ),
        ({"next_attempt_at_ms": NOW_MS + 5000}, "begins in 5 s"),
    ],
)
def test_what_it_asks_for_is_named(changes: dict[str, Any], sentence: str) -> None:
    assert why(view(T.PENDING, **changes), LIMITED) == sentence


def test_full_agents_are_named() -> None:
    full = replace(LIMITED, full_agents={"codex": 2})
    assert why(view(T.PENDING), full) == "waits for agent codex, which does 2 of 2 tasks already"
    assert (
        why(view(T.PENDING, pinned_agent="codex"), full)
        == "waits for agent codex, which does 2 of 2 tasks already"
    )
    assert why(view(T.PENDING, pinned_agent="claude"), full) == "waits for a free worker"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"paused_reason": PauseReason.QUESTION, "question": "why?"}, "asks: why?"),
        (
            {"paused_reason": PauseReason.BREAKER},
            "paused, because too many tasks of its plan failed in a row",
        ),
        (
            {"paused_reason": PauseReason.BUDGET, "budgets_used_up": ("task", "plan")},
            "paused, its budget is used up: `muster budget api/a USD` raises it",
        ),
        (
            {"paused_reason": PauseReason.BUDGET, "budgets_used_up": ("plan",)},
            "paused, the budget of its plan is used up: `muster budget api USD` raises it",
        ),
        (
            {"paused_reason": PauseReason.BUDGET},
            "paused, a budget was used up, which is higher now: `muster task resume` goes on",
        ),
        ({"paused_reason": PauseReason.REVIEW}, "waits for a review"),
        (
            {"paused_reason": PauseReason.REVIEW, "error_kind": K.REWORK, "error": "no"},
            "waits for a review: no; mend it there and accept it, or send it back",
        ),
        ({"paused_reason": PauseReason.REVIEW, "error_kind": K.REVIEW, "error": FOR_YOU}, FOR_YOU),
    ],
)
def test_a_pause_says_why(changes: dict[str, Any], sentence: str) -> None:
    assert why(view(T.PAUSED, **changes), BUSY_CREW) == sentence


def test_how_an_unwanted_task_ended() -> None:
    assert why(view(T.CANCELLED, error="skipped"), BUSY_CREW) == "skipped"
    assert why(view(T.CANCELLED, error="cancelled"), BUSY_CREW) == "cancelled"


@pytest.mark.parametrize(
    ("hours", "word"),
    [
        (0, "14:32"),
        (9, "23:32"),
        (10, "Sat 00:32"),
        (150, "Thu 20:32"),
        (7 * 24, "2027-01-22 14:32"),
        (-24, "2027-01-14 14:32"),
    ],
)
def test_a_time_says_its_day_where_that_is_not_today(hours: int, word: str) -> None:
    noon_ms = 1_800_012_720_000  # a Friday, 11:32 UTC
    assert clock_word(noon_ms + hours * 3_600_000, noon_ms, 3 * 3600) == word


SILENT = OfflineProgram(since_ms=NOW_MS - 60_000, capabilities=frozenset({"ruby"}))
AWAY = replace(
    LIMITED, programs=frozenset({"codex", "dev-1", "dev-2"}), offline={"dev-1": SILENT, "dev-2": SILENT}
)


@pytest.mark.parametrize(
    ("changes", "facts", "sentence"),
    [
        (
            {"wanted_agent": "dev-1"},
            AWAY,
            "agent dev-1, a program, is offline (heard last at 00:15): it takes tasks again once it is started "
            "and heard (POST /api/v1/agents/dev-1/heartbeat)",
        ),
        (
            {"wanted_agent": "dev-2"},
            replace(AWAY, free={}, offline={"dev-2": replace(SILENT, ended="asked for by ann")}),
            "agent dev-2, a program, has ended (heard last at 00:15): asked for by ann; it takes tasks again "
            "once it is started and registers itself (PUT /api/v1/agents/dev-2)",
        ),
        (
            {"capabilities": ("ruby",)},
            AWAY,
            "agent dev-1, a program, is offline (heard last at 00:15): it takes tasks again once it is started "
            "and heard (POST /api/v1/agents/dev-1/heartbeat)",
        ),
        (
            {"capabilities": ("ruby",)},
            replace(AWAY, offline={"dev-1": replace(SILENT, aimed_only=True)}),
            "no agent offers ruby: add it to agents.NAME.capabilities in muster.toml",
        ),
        (
            {"capabilities": ("gpu",), "pinned_agent": "codex"},
            AWAY,
            "agent codex does not offer gpu: it is a program, which says what it can do when it registers "
            "(`capabilities` of PUT /api/v1/agents/codex)",
        ),
    ],
)
def test_of_a_program_it_is_told_what_brings_it_back(
    changes: dict[str, Any], facts: CrewFacts, sentence: str
) -> None:
    found = reason(view(T.PENDING, **changes), facts)
    assert (found.text, found.needs_person) == (sentence, True)


@pytest.mark.parametrize(
    ("task", "facts", "fix"),
    [
        (
            {"wanted_agent": "gone"},
            crew(unfit={"gone": "words"}, lacking={"gone": "T"}),
            "muster secrets set T",
        ),
        ({}, crew(free={}, unfit={"": "a cannot run: x"}, lacking={"": "T"}), "muster secrets set T"),
        (
            {"wanted_agent": "gone"},
            crew(last_unfit={"gone": "x"}, lacking={"gone": "T"}),
            "muster secrets set T",
        ),
        # The words of a reason are anybody's.
        ({"wanted_agent": "gone"}, crew(unfit={"gone": not_set("T")}), ""),
        (
            {"wanted_agent": "gone"},
            crew(unfit={"gone": not_set("X")}, lacking={"gone": "T"}),
            "muster secrets set T",
        ),
        ({"wanted_agent": "gone"}, BUSY_CREW, ""),
        ({}, crew(crew=CrewStatus.PAUSED), "muster orchestrator resume"),
    ],
)
def test_the_command_that_gets_it_going(task: dict[str, Any], facts: CrewFacts, fix: str) -> None:
    found = reason(view(T.PENDING, **task), facts)
    assert (found.fix, found.needs_person) == (fix, True)
