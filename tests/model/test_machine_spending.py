"""What failures, losses and timeouts spend, and how the agent's own word is settled."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machine_makers import (
    LEASE_MS,
    NOW,
    commands,
    fail,
    later,
    make_attempt,
    make_task,
    reap,
    refusal,
    run,
    running,
)
from msgspec.structs import replace

from muster.model import commands as c
from muster.model.errors import BadInput
from muster.model.pools import CLOSING, Pool, closed_again
from muster.model.retry import SPENDS, RetryPolicy, Spend, backoff_ms, for_task
from muster.model.states import AttemptStatus, ErrorKind, TaskStatus
from searches import properties

K = ErrorKind
FIRST_MS, CAP_MS = 30_000, 300_000


@pytest.mark.parametrize(
    ("kind", "status", "retries", "losses", "waits"),
    [
        (K.CRASH, TaskStatus.ABORTED, 1, 0, True),
        (K.TIMEOUT, TaskStatus.ABORTED, 1, 0, True),
        (K.LOST, TaskStatus.ABORTED, 0, 1, True),
        (K.INVALID, TaskStatus.FAILED, 0, 0, False),
        (K.OUT_OF_MEMORY, TaskStatus.FAILED, 0, 0, False),
        (K.RATE_LIMIT, TaskStatus.PENDING, 0, 0, False),
        (K.QUOTA, TaskStatus.PENDING, 0, 0, False),
        (K.AUTH, TaskStatus.PENDING, 0, 0, False),
        (K.BILLING, TaskStatus.PENDING, 0, 0, False),
    ],
)
def test_each_kind_spends_what_the_design_says(
    kind: ErrorKind, status: TaskStatus, retries: int, losses: int, waits: bool
) -> None:
    after = run(*running(), fail(kind)).task
    assert (after.status, after.retries, after.losses) == (status, retries, losses)
    assert (after.next_attempt_at_ms is not None) == waits
    assert (after.error_kind, after.error) == (kind, f"it was {kind}")
    assert (after.ended_at_ms is not None) == (status is TaskStatus.FAILED)


def test_every_kind_has_a_price() -> None:
    assert SPENDS.keys() == set(ErrorKind)


@pytest.mark.parametrize(("retries", "max_retries"), [(0, 0), (3, 3), (5, 3)])
def test_the_last_retry_is_the_last(retries: int, max_retries: int) -> None:
    after = run(*running(retries=retries, max_retries=max_retries), fail()).task
    assert (after.status, after.retries, after.next_attempt_at_ms) == (TaskStatus.FAILED, retries, None)


def test_losses_go_on_at_once_first_then_with_backoff_then_end_as_poison() -> None:
    task, waits = make_task(TaskStatus.RUNNING), []
    for _ in range(5):
        decision = run(task, make_attempt(), reap(), jitter=1.0)
        due_ms = decision.task.next_attempt_at_ms
        waits.append(None if due_ms is None else due_ms - NOW.wall_ms)
        if waits[-1] == 0:
            assert decision.follow_ups == (c.Promote(task_id=7),)
        else:
            assert decision.follow_ups == ()
        task = replace(decision.task, status=TaskStatus.RUNNING, next_attempt_at_ms=None)
    assert waits == [0, FIRST_MS, 2 * FIRST_MS, 4 * FIRST_MS, None]
    assert decision.task.status is TaskStatus.FAILED
    assert (decision.task.losses, decision.task.retries) == (5, 0)
    assert decision.attempt is not None and decision.attempt.status is AttemptStatus.LOST


@pytest.mark.parametrize(
    ("lived_ms", "waits_ms"), [(-5_000, FIRST_MS), (0, FIRST_MS), (400, FIRST_MS - 400), (FIRST_MS, 0)]
)
def test_who_has_worked_longer_than_its_backoff_is_replaced_at_once(lived_ms: int, waits_ms: int) -> None:
    """So its slot is still free; a clock that was set back makes nobody wait longer."""
    task, _ = running(losses=1)
    decision = run(task, make_attempt(started_at_ms=NOW.wall_ms - lived_ms), reap(), jitter=1.0)
    assert decision.task.next_attempt_at_ms == NOW.wall_ms + waits_ms
    assert decision.follow_ups == (() if waits_ms else (c.Promote(task_id=7),))


def test_what_could_not_be_published_waits_for_its_whole_backoff() -> None:
    task, _ = running(losses=1, done_epoch=4)
    attempt = make_attempt(started_at_ms=NOW.wall_ms - 10 * FIRST_MS)
    decision = run(task, attempt, fail(K.LOST, done=True), jitter=1.0)
    assert decision.task.next_attempt_at_ms == NOW.wall_ms + 2 * FIRST_MS


def test_a_timeout_doubles_the_limit_up_to_four_times() -> None:
    task, factors = make_task(TaskStatus.RUNNING, max_retries=9), []
    for _ in range(4):
        task = replace(run(task, make_attempt(), fail(K.TIMEOUT)).task, status=TaskStatus.RUNNING)
        factors.append(task.timeout_factor)
    assert factors == [2, 4, 4, 4]
    assert run(task, make_attempt(), fail(K.CRASH)).task.timeout_factor == 4


def test_a_new_generation_forgets_what_was_spent() -> None:
    spent = make_task(
        TaskStatus.FAILED, retries=3, losses=4, timeout_factor=4, percent=70, error="x", error_kind=K.CRASH
    )
    after = run(spent, None, c.Retry(task_id=7, actor="ada", note="try the other way")).task
    assert (after.retries, after.losses, after.timeout_factor, after.percent) == (0, 0, 1, 0)
    assert (after.error, after.error_kind, after.note) == ("", None, "try the other way")
    assert (after.generation, after.epoch, after.ended_at_ms) == (2, spent.epoch, None)


@pytest.mark.promise("S9")
@given(
    count=st.integers(-10, 10**6),
    first_s=st.floats(0, 1e6),
    cap_s=st.floats(0, 1e6),
    jitter=st.floats(-1, 2),
)
@properties(300)
def test_backoff_saturates_and_is_never_negative(
    count: int, first_s: float, cap_s: float, jitter: float
) -> None:
    policy = RetryPolicy(first_s=first_s, cap_s=cap_s)
    wait_ms = backoff_ms(count, policy, jitter)
    assert 0 <= wait_ms <= cap_s * 1000
    assert backoff_ms(count, policy, 1.0) <= backoff_ms(count + 1, policy, 1.0)


def test_a_task_has_a_backoff_of_its_own_that_grows_as_well() -> None:
    own = for_task(RetryPolicy(), 300)
    assert [backoff_ms(n, own, 1.0) // 1000 for n in (0, 1, 3, 4, 10**6)] == [300, 600, 2400, 3000, 3000]
    assert for_task(RetryPolicy(), None) == RetryPolicy()


def test_backoff_doubles_from_the_first_to_the_cap() -> None:
    policy = RetryPolicy()
    assert [backoff_ms(n, policy, 1.0) for n in range(6)] == [
        FIRST_MS, 2 * FIRST_MS, 4 * FIRST_MS, 8 * FIRST_MS, CAP_MS, CAP_MS,
    ]  # fmt: skip
    assert backoff_ms(10**6, policy, 0.5) == CAP_MS // 2


@pytest.mark.promise("S9")
@given(spent=st.integers(0, 10**6), jitter=st.floats(0, 1, exclude_max=True), kind=st.sampled_from(ErrorKind))
@properties(200)
def test_any_number_of_failures_gives_a_bounded_wait(spent: int, jitter: float, kind: ErrorKind) -> None:
    task = make_task(TaskStatus.RUNNING, retries=spent, losses=spent, max_retries=10**7)
    policy = RetryPolicy(losses_max=10**7)
    after = run(task, make_attempt(), fail(kind), jitter=jitter, retry=policy).task
    if after.next_attempt_at_ms is not None:
        assert 0 <= after.next_attempt_at_ms - NOW.wall_ms <= CAP_MS
    elif kind is ErrorKind.REVIEW:
        assert after.status is TaskStatus.PAUSED
    elif kind in CLOSING:
        assert after.status is TaskStatus.PENDING
    else:
        assert after.status is TaskStatus.FAILED


def refused(**changes: Any) -> Pool:
    return Pool(**{"kind": K.QUOTA, "reason": "no", "since_ms": 5000, "until_ms": 5000, "task": 7, **changes})


@pytest.mark.parametrize(("stated_s", "waits_ms"), [(None, 15_000), (90.5, 90_500), (0.0, 1000)])
def test_a_provider_is_left_alone_for_as_long_as_it_has_stated(stated_s: float | None, waits_ms: int) -> None:
    assert closed_again(None, refused(), stated_s, 0.0).until_ms == 5000 + waits_ms


@pytest.mark.promise("S9")
@given(tries=st.integers(0, 10**9), jitter=st.floats(0, 1, exclude_max=True))
@properties(200)
def test_a_provider_is_left_alone_for_longer_each_time_but_never_for_long(tries: int, jitter: float) -> None:
    until_ms = closed_again(refused(tries=tries), refused(), None, jitter).until_ms
    longer_ms = closed_again(refused(tries=tries + 1), refused(), None, jitter).until_ms
    assert until_ms is not None
    assert longer_ms is not None
    assert 15_000 <= until_ms - 5000 <= longer_ms - 5000 <= 300_000


# -- the agent's own word


def declared(kind: ErrorKind | None, text: str) -> c.Declare:
    return c.Declare(task_id=7, epoch=4, kind=kind, text=text)


def said(kind: ErrorKind | None, text: str) -> tuple:
    task, attempt = running()
    decision = run(task, attempt, declared(kind, text))
    assert decision.task.status is TaskStatus.RUNNING
    assert decision.attempt is not None
    return decision.task, decision.attempt


def test_a_declared_result_is_taken_where_the_exit_brings_none() -> None:
    task, attempt = said(None, '{"a":1}')
    decision = run(task, attempt, c.Complete(task_id=7, epoch=4, exit_code=0))
    assert (decision.task.status, decision.result) == (TaskStatus.COMPLETED, '{"a":1}')
    assert run(task, attempt, c.Complete(task_id=7, epoch=4, result="2")).result == "2"


@pytest.mark.parametrize("kind", [kind for kind in K if SPENDS[kind] is not Spend.LOSS])
def test_a_declared_failure_is_a_failure_whatever_the_exit_code(kind: ErrorKind) -> None:
    task, attempt = said(kind, "the API is gone")
    complete = c.Complete(task_id=7, epoch=4, exit_code=0)
    decision = run(task, attempt, complete)
    plain = run(task, make_attempt(), c.Fail(task_id=7, epoch=4, kind=kind, message="the API is gone"))
    assert (decision.task.status, decision.task.retries) == (plain.task.status, plain.task.retries)
    assert (decision.task.error_kind, decision.task.error) == (kind, "the API is gone")
    assert not decision.unblocks
    again = run(decision.task, decision.attempt, complete)
    assert (again.task, again.attempt, again.events) == (decision.task, None, ())
    fail = c.Fail(task_id=7, epoch=4, kind=K.CRASH, message="exit code 1: usage limit", exit_code=1)
    badly = run(task, attempt, fail)
    assert (badly.task.status, badly.task.retries) == (plain.task.status, plain.task.retries)
    assert (badly.task.error_kind, badly.task.error) == (kind, "the API is gone")
    assert badly.attempt.exit_code == 1
    assert run(badly.task, badly.attempt, fail).events == (), "repeated"


def test_an_exit_code_that_contradicts_a_declared_result_says_so() -> None:
    task, attempt = said(None, "1")
    fail = c.Fail(task_id=7, epoch=4, kind=K.CRASH, message="exit code 1: oops", exit_code=1)
    after = run(task, attempt, fail).task
    assert (after.error_kind, after.done_epoch) == (K.CRASH, None)
    assert after.error == "it had reported done, then ended with exit code 1: oops"
    after = run(task, attempt, replace(fail, message="killed by SIGSEGV", exit_code=-11)).task
    assert after.error == "it had reported done, then ended badly: killed by SIGSEGV"
    lost = replace(fail, kind=K.LOST, message="killed by SIGKILL from outside", exit_code=-9)
    decision = run(task, attempt, lost)
    assert decision.task.done_epoch == 4, "its work is published"
    assert run(decision.task, decision.attempt, lost).events == (), "repeated"


def test_a_declared_failure_outlives_its_worker() -> None:
    after = run(*said(K.INVALID, "no such file"), reap()).task
    assert (after.status, after.error, after.losses) == (TaskStatus.FAILED, "no such file", 0)


def test_a_release_gives_back_what_was_declared_to_have_failed() -> None:
    decision = run(*said(K.CRASH, "no"), commands()["release"])
    assert (decision.task.status, decision.task.retries) == (TaskStatus.PENDING, 0)


def test_the_last_word_counts() -> None:
    task, attempt = said(K.CRASH, "no")
    attempt = run(task, attempt, declared(None, "1")).attempt
    assert run(task, attempt, c.Complete(task_id=7, epoch=4)).task.status is TaskStatus.COMPLETED


@pytest.mark.parametrize(
    "command",
    [
        c.Declare(task_id=7, epoch=4, text=" " * c.RESULT_BYTES_MAX + "1"),
        c.SaveCheckpoint(task_id=7, epoch=4, data=b"x" * (c.CHECKPOINT_BYTES_MAX + 1)),
        c.AppendLog(task_id=7, epoch=4, stream="stdout", offset=0, data=b"x" * (c.LOG_CHUNK_BYTES_MAX + 1)),
    ],
)
def test_too_much_is_refused_and_one_byte_less_is_not(command: c.Command) -> None:
    with pytest.raises(BadInput, match=r"bytes|characters"):
        run(*running(), command)
    name = "text" if isinstance(command, c.Declare) else "data"
    assert refusal(*running(), replace(command, **{name: getattr(command, name)[1:]})) == ""


def test_a_full_log_takes_no_more_and_says_nothing() -> None:
    task, attempt = running()
    full = replace(attempt, log_bytes=c.LOG_BYTES_MAX)
    decision = run(task, full, commands()["log"])
    assert (decision.log, decision.attempt) == (None, None)


# -- leases


@pytest.mark.promise("L1")
def test_a_lease_ends_exactly_when_it_ends() -> None:
    lease_s = LEASE_MS / 1000
    assert refusal(*running(), reap(proven=False), later(lease_s - 0.001)) == "illegal_move"
    assert refusal(*running(), reap(proven=False), later(lease_s)) == ""
    assert refusal(*running(), reap(proven=False), replace(NOW, boot_id="boot-b")) == ""
    assert refusal(*running(), reap(proven=False), replace(NOW, wall_ms=NOW.wall_ms * 2)) == "illegal_move"


def test_a_renewal_begins_the_lease_anew_but_not_the_time_to_stop_in() -> None:
    task, attempt = make_task(TaskStatus.RUNNING), make_attempt(AttemptStatus.STOPPING)
    now = later(4)
    renewed = run(task, attempt, c.Renew(task_id=7, epoch=4), now).attempt
    assert renewed is not None and renewed.lease_until_ms == now.mono_ms + LEASE_MS
    assert renewed.stop_by_ms == attempt.stop_by_ms
    assert refusal(task, renewed, reap(proven=False), later(5)) == ""
    fresh = run(task, attempt, c.Renew(task_id=7, epoch=4, fresh=True), now).attempt
    assert fresh is not None and fresh.stop_by_ms == now.mono_ms + LEASE_MS
    assert refusal(task, fresh, reap(proven=False), later(5)) == "illegal_move"


def test_the_coordinator_promotes_only_what_is_due_and_a_person_at_any_time() -> None:
    task = make_task(TaskStatus.ABORTED, next_attempt_at_ms=NOW.wall_ms + 1)
    by_coordinator, by_person = c.Promote(task_id=7, term=1), c.Promote(task_id=7, actor="ada")
    assert refusal(task, None, by_coordinator) == "illegal_move"
    assert refusal(task, None, by_coordinator, later(0.001)) == ""
    assert run(task, None, by_person).task.ready


def test_a_retry_between_two_tries_is_the_next_try_now() -> None:
    task = make_task(TaskStatus.ABORTED, next_attempt_at_ms=NOW.wall_ms + 1)
    after = run(task, None, c.Retry(task_id=7, actor="ada")).task
    assert (after.ready, after.generation) == (True, task.generation)
    assert refusal(task, None, c.Retry(task_id=7, actor="ada", fresh=True)) == "illegal_move"


def test_a_person_who_completes_a_failed_task_clears_its_error() -> None:
    failed = make_task(TaskStatus.FAILED, error="boom", error_kind=K.CRASH, epoch=4)
    decision = run(failed, make_attempt(AttemptStatus.FAILED), commands()["person"])
    assert (decision.task.error, decision.task.error_kind, decision.unblocks) == ("", None, True)


def test_only_the_last_of_several_dependencies_makes_an_event() -> None:
    task = make_task(unmet=3)
    first = run(task, None, c.Unblock(task_id=7, count=2))
    assert (first.task.unmet, first.task.ready, first.events) == (1, False, ())
    last = run(first.task, None, c.Unblock(task_id=7, count=1))
    assert (last.task.ready, [event.event for event in last.events]) == (True, ["unblocked"])
    assert refusal(last.task, None, c.Unblock(task_id=7, count=1)) == "illegal_move"


def test_started_twice_with_one_token_is_a_repetition() -> None:
    task, attempt = running()
    again = c.Start(task_id=7, epoch=4, token_hash=attempt.token_hash or "")
    assert run(task, attempt, again).events == ()


def test_the_same_progress_is_no_event() -> None:
    task, attempt = running(percent=40, step="tests")
    assert run(task, attempt, commands()["progress"]).events == ()
    assert run(task, attempt, c.Progress(task_id=7, epoch=4, step="docs")).task.percent == 40
