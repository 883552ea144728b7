"""One worker is asked to end; workers are added by hand."""

from __future__ import annotations

import pytest
from engine_rig import W1, W2, Rig

from muster.engine.batch import drive
from muster.model import commands as c
from muster.model.errors import Conflict, NotFound
from muster.model.states import StopAction


@pytest.fixture
def two(rig: Rig) -> Rig:
    rig.register(W1)
    rig.register(W2)
    rig.enqueue({"a": [], "b": []})
    return rig


def drain(rig: Rig, worker_id: str = W1, stop_by_s: float | None = None) -> None:
    rig.do(c.DrainWorker(worker_id=worker_id, actor="ada", stop_by_s=stop_by_s))


def test_it_gets_no_more_work_and_finishes_what_it_holds(two: Rig) -> None:
    (job,) = two.started(W1, 1)
    drain(two)
    drain(two)
    claimed = two.do(two.claim_command(W1))
    assert (claimed.jobs, claimed.drain) == ((), True)
    for _ in range(2):
        answer = two.beat(W1, job)
        assert (answer.drain, answer.attempts[0].current, answer.attempts[0].stop) == (True, True, None)
    view = drive(two.queries.worker(W1))
    assert (view.status, view.reason) == ("stopping", "asked to end by ada")
    assert two.beat(W2).drain is False
    assert len(two.claim(W2, 1)) == 1
    two.do(c.Deregister(worker_id=W1, reason="drained"))
    assert drive(two.queries.worker(W1)).reason == "asked to end by ada"


def test_with_a_time_limit_what_it_holds_is_to_stop(two: Rig) -> None:
    (job,) = two.started(W1, 1)
    (other,) = two.started(W2, 1)
    drain(two, stop_by_s=15)
    assert two.beat(W1, job).attempts[0].stop is StopAction.RELEASE
    assert two.beat(W2, other).attempts[0].stop is None


def test_the_last_worker_that_takes_work_stays(two: Rig) -> None:
    drain(two, W1)
    with pytest.raises(Conflict, match="last worker"):
        drain(two, W2)
    assert two.beat(W2).drain is False
    drain(two, W1)  # it is asked already


def test_who_is_not_there_cannot_be_asked(two: Rig) -> None:
    with pytest.raises(NotFound):
        drain(two, "worker-nobodyxx")
    two.do(c.Deregister(worker_id=W1))
    with pytest.raises(NotFound):
        drain(two, W1)
    with pytest.raises(NotFound):
        drive(two.queries.worker("worker-nobodyxx"))


def test_an_order_for_workers_counts_once(rig: Rig) -> None:
    def order(count: int, request_id: str) -> int:
        total: int = rig.do(c.AddWorkers(count=count, request_id=request_id, actor="ada")).total
        return total

    assert [order(2, "x"), order(2, "x"), order(3, "y")] == [2, 2, 5]
    assert drive(rig.queries.status()).workers_ordered == 5
