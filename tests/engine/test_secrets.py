"""Who is given an agent's secrets: who holds its lease, and nobody else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from engine_rig import FakeClock, FixedChance
from msgspec.structs import replace

from asking import asked
from muster.engine.batch import drive
from muster.engine.commands import Engine
from muster.engine.policy import Policy
from muster.engine.queries import Queries
from muster.model import commands as c
from muster.model.answers import ClaimedJob, SealedSecrets
from muster.model.errors import MusterError, NotFound, StaleEpoch
from muster.model.rows import ANY_AGENT, DEFAULT_WORKSPACE, Workspace
from muster.model.seals import Signer
from muster.model.secrets import key_lost, not_set
from muster.stores.sqlite.store import MEMORY, SqliteStore

WORKER, BOB = "worker-aaaaaaaa", 2


class Rig:
    """Two workspaces, of which one has a worker and a task that it has claimed."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.store = SqliteStore.open(MEMORY)
        self.engine = Engine(self.store, FixedChance(), Policy(), Signer(b"k" * 32).grants())
        drive(self.store.transact(lambda tx: tx.add_workspace(Workspace(BOB, "bob", 0))))
        host: Any = {"hostname": "h", "pid": 1, "pid_start": 1, "boot_id": "b"}
        self.do(c.Register(worker_id=WORKER, agents=("claude",), general=("claude",), **host))
        tasks = (c.Spec(title="A", key="a", agent="claude"),)
        self.do(c.Enqueue(plan="p", source=None, tasks=tasks, actor="user:ann"))
        self.do(c.PutSecret(name="TOKEN", sealed="sealed", actor="user:ann"))
        self.clock.advance(1)

    def do(self, command: c.Command, workspace_id: int = DEFAULT_WORKSPACE) -> Any:
        applied = drive(self.engine.apply(asked(command, workspace_id=workspace_id), self.clock.now()))
        (outcome,) = applied.outcomes
        if isinstance(outcome, MusterError):
            raise outcome
        return outcome

    def claim(self, request_id: str = "r") -> tuple[ClaimedJob, ...]:
        found: tuple[ClaimedJob, ...] = self.do(c.Claim(worker_id=WORKER, request_id=request_id)).jobs
        return found


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig()
    yield made
    made.store.close()


def asks(job: ClaimedJob) -> c.AskSecrets:
    return c.AskSecrets(task_id=job.task_id, epoch=job.epoch, proof=job.proof, names=("TOKEN", "OTHER"))


def unfit(job: ClaimedJob, why: str, secret: str | None) -> c.Release:
    own: Any = {"task_id": job.task_id, "epoch": job.epoch, "proof": job.proof}
    return c.Release(**own, reason=why, unfit_agent=why, unfit_secret=secret)


def test_who_holds_the_lease_is_given_what_there_is(rig: Rig) -> None:
    (job,) = rig.claim()
    assert rig.do(asks(job)) == SealedSecrets(sealed={"TOKEN": "sealed"})


@pytest.mark.parametrize(
    "wrong",
    [{"epoch": 2}, {"proof": ""}, {"proof": f"{WORKER}.00"}, {"proof": "worker-bbbbbbbb.00"}],
)
def test_without_the_proof_of_the_grant_nothing_is_told(rig: Rig, wrong: dict[str, Any]) -> None:
    (job,) = rig.claim()
    with pytest.raises(StaleEpoch):
        rig.do(replace(asks(job), **wrong))


def test_once_the_attempt_is_over_nothing_is_told(rig: Rig) -> None:
    (job,) = rig.claim()
    rig.do(c.Release(task_id=job.task_id, epoch=job.epoch, reason="stopped"))
    with pytest.raises(StaleEpoch):
        rig.do(asks(job))


@pytest.mark.promise("S13")
def test_another_workspace_finds_neither_the_task_nor_the_secret(rig: Rig) -> None:
    (job,) = rig.claim()
    with pytest.raises(NotFound):
        rig.do(asks(job), BOB)
    with pytest.raises(NotFound):
        rig.do(c.RemoveSecret(name="TOKEN", actor="bob"), BOB)
    rig.do(c.PutSecret(name="TOKEN", sealed="bobs", actor="bob"), BOB)
    assert rig.do(asks(job)).sealed == {"TOKEN": "sealed"}


@pytest.mark.promise("L3")
@pytest.mark.parametrize("why", [not_set("TOKEN"), key_lost("TOKEN")])
def test_a_task_waits_for_a_secret_and_goes_on_once_it_is_set(rig: Rig, why: str) -> None:
    (job,) = rig.claim()
    rig.do(unfit(job, why, "TOKEN"))
    assert rig.claim("again") == ()
    queries = Queries(rig.store.reads.of(DEFAULT_WORKSPACE), rig.clock, Policy())
    waiting = drive(queries.task(job.task_id)).task
    assert waiting.why.endswith("muster secrets set TOKEN")
    assert waiting.fix == "muster secrets set TOKEN"
    rig.do(c.PutSecret(name="OTHER", sealed="sealed", actor="user:ann"))
    assert rig.claim("third") == ()
    rig.do(c.PutSecret(name="TOKEN", sealed="sealed", actor="user:ann"))
    (job,) = rig.claim("fourth")
    assert job.epoch == 2


@pytest.mark.parametrize("why", [not_set("NEW"), key_lost("NEW")])
def test_one_that_is_set_while_its_worker_asks_makes_nobody_wait(rig: Rig, why: str) -> None:
    (job,) = rig.claim()
    rig.do(c.PutSecret(name="NEW", sealed="sealed", actor="user:ann"))
    rig.do(unfit(job, why, "NEW"))
    (again,) = rig.claim("again")
    assert (again.task_id, again.epoch) == (job.task_id, job.epoch + 1)


def test_words_that_name_a_secret_are_no_reason_to_try_again(rig: Rig) -> None:
    (job,) = rig.claim()
    rig.do(unfit(job, not_set("TOKEN"), None))
    queries = Queries(rig.store.reads.of(DEFAULT_WORKSPACE), rig.clock, Policy())
    assert drive(queries.task(job.task_id)).task.fix == ""
    rig.do(c.PutSecret(name="TOKEN", sealed="sealed", actor="user:ann"))
    assert rig.claim("again") == ()


def test_what_the_last_worker_lacked_is_not_said_once_it_is_set(rig: Rig) -> None:
    rig.do(c.Enqueue(plan="p", source=None, tasks=(c.Spec(title="B", key="b"),), actor="user:ann"))
    (job,) = rig.claim()
    rig.do(unfit(job, not_set("NEW"), "NEW"))
    rig.do(c.Deregister(worker_id=WORKER, reason="drained"))
    queries = Queries(rig.store.reads.of(DEFAULT_WORKSPACE), rig.clock, Policy())
    assert set(drive(queries.crew()).last_unfit) == {"claude", ANY_AGENT}
    assert drive(queries.task(job.task_id)).task.fix == "muster secrets set NEW"
    rig.do(c.PutSecret(name="NEW", sealed="sealed", actor="user:ann"))
    assert drive(queries.crew()).last_unfit == {}
