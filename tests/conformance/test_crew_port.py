"""`ports.crew` keeps its promises whichever way a worker asks: in one process, on a socket, over TCP."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest
from msgspec.structs import replace

from far_servers import SECRET, far_owner
from muster.app.embedded import EmbeddedOwner
from muster.app.settings import load_config
from muster.client.crew import HttpCrew
from muster.config.project import Project
from muster.model import commands as c
from muster.model.answers import ClaimedJob, Enqueued
from muster.model.errors import BadInput, Conflict, Forbidden, Unavailable
from muster.model.states import ErrorKind, TaskStatus
from muster.ports.crew import Crew

TOKEN_HASH = hashlib.sha256(b"of the attempt").hexdigest()
JOB = {"task_id": 1, "epoch": 1}
"""Of which attempt it is told later."""
WAYS = ("in process", "socket", "TCP")


@dataclass
class Way:
    """One that a worker may take, and one that a person takes to add tasks."""

    crew: Crew
    add: Callable[[c.Enqueue], Enqueued]
    numbers: Iterator[int]
    far: bool = False
    """The worker has a token of its own."""

    def worker(self, **changes: object) -> str:
        worker_id = f"worker-conform{next(self.numbers) % 10}"
        given = {"hostname": "h", "pid": os.getpid(), "pid_start": 1, "boot_id": "b", "slots": 9}
        registered = self.crew.register(
            c.Register(worker_id=worker_id, agents=(worker_id,), **(given | changes))  # type: ignore[arg-type]
        )
        assert 0 < registered.heartbeat_s < registered.lease_s
        return worker_id

    def tasks(self, worker_id: str, number: int = 1, **fields: object) -> tuple[int, ...]:
        """That nobody but this worker takes."""
        specs = tuple(c.Spec(title=f"Task {n}", agent=worker_id, **fields) for n in range(number))  # type: ignore[arg-type]
        plan = f"plan-{next(self.numbers)}"
        return self.add(c.Enqueue(plan=plan, source=None, tasks=specs, actor="user:ann")).task_ids

    def claim(self, worker_id: str) -> ClaimedJob:
        claim = c.Claim(worker_id=worker_id, request_id=f"request-{next(self.numbers)}")
        (job,) = self.crew.claim(claim, wait_s=0).jobs
        return job

    def begun(self, worker_id: str) -> ClaimedJob:
        job = self.claim(worker_id)
        moved = self.crew.report(
            c.Start(task_id=job.task_id, epoch=job.epoch, proof=job.proof, token_hash=TOKEN_HASH)
        )
        assert (moved.task_id, moved.status, moved.epoch) == (job.task_id, TaskStatus.RUNNING, job.epoch)
        return job


@pytest.fixture(scope="module", params=WAYS)
def way(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Way]:
    folder, numbers = tmp_path_factory.mktemp("crew"), count(1)
    if request.param == "in process":
        (folder / "muster.toml").write_text('agent = "shell"\n')
        with EmbeddedOwner.begin(Project(folder), load_config(folder)) as owner:
            yield Way(owner.crew(), owner.enqueue, numbers)
        return
    with far_owner(folder / "server") as far:
        crew = HttpCrew(far.socket) if request.param == "socket" else HttpCrew(far.url, SECRET)
        yield Way(crew, far.do, numbers, far=request.param == "TCP")
        crew.close()


@pytest.mark.promise("S1")
def test_a_claim_that_is_repeated_gives_the_same(way: Way) -> None:
    worker = way.worker()
    (task_id, _) = way.tasks(worker, 2)
    claim = c.Claim(worker_id=worker, request_id="lost")
    first, again = way.crew.claim(claim, wait_s=0), way.crew.claim(claim, wait_s=0)
    assert [job.task_id for job in first.jobs] == [task_id]
    assert again == first
    assert way.claim(worker).task_id != task_id


@pytest.mark.promise("S16")
def test_what_is_told_of_an_attempt_is_kept_for_the_next_one(way: Way) -> None:
    worker = way.worker()
    way.tasks(worker, max_retries=1)
    job = way.begun(worker)
    about = {"task_id": job.task_id, "epoch": job.epoch, "proof": job.proof}
    way.crew.report(c.Progress(percent=40, step="half of it", **about))
    way.crew.report(c.AppendLog(stream="stdout", offset=0, data=b"said\n", **about))
    way.crew.report(c.SaveCheckpoint(data="größer \0".encode(), **about))
    way.crew.report(c.AddArtifact(name="page", location="dist/x.html", **about))
    assert way.crew.place(job.task_id).before is None
    failed = way.crew.report(c.Release(reason="stopped on request", **about))
    assert failed.status is TaskStatus.PENDING
    next_one = way.begun(worker)
    assert (next_one.task_id, next_one.epoch) == (job.task_id, job.epoch + 1)
    assert next_one.checkpoint == "größer \0".encode()


@pytest.mark.promise("S3")
def test_an_old_attempt_changes_nothing_any_more(way: Way) -> None:
    worker = way.worker()
    way.tasks(worker)
    old = way.begun(worker)
    about = {"task_id": old.task_id, "epoch": old.epoch, "proof": old.proof}
    way.crew.report(c.Release(reason="stopped on request", **about))
    new = way.begun(worker)
    for command in (
        c.Progress(percent=1, **about),
        c.SaveCheckpoint(data=b"old", **about),
        c.Fail(kind=ErrorKind.CRASH, message="late", **about),
    ):
        with pytest.raises(Conflict, match="newer one holds it"):
            way.crew.report(command)
    done = c.Complete(task_id=new.task_id, epoch=new.epoch, proof=new.proof, exit_code=0)
    assert way.crew.report(done).status is TaskStatus.COMPLETED


@pytest.mark.promise("S4")
def test_the_end_of_an_attempt_may_be_told_twice(way: Way) -> None:
    worker = way.worker()
    way.tasks(worker)
    job = way.begun(worker)
    done = c.Complete(task_id=job.task_id, epoch=job.epoch, proof=job.proof, result='{"rows":3}', exit_code=0)
    assert way.crew.report(done) == way.crew.report(done)


def test_an_end_may_bring_what_comes_next(way: Way) -> None:
    worker = way.worker()
    first, second = way.tasks(worker, 2)
    job = way.begun(worker)
    then = c.Claim(worker_id=worker, request_id="next")
    moved = way.crew.report(
        c.Complete(task_id=job.task_id, epoch=job.epoch, proof=job.proof, exit_code=0, then=then)
    )
    assert job.task_id == first
    assert moved.next is not None
    assert [one.task_id for one in moved.next.jobs] == [second]


def test_a_heartbeat_tells_which_attempts_are_over(way: Way) -> None:
    worker = way.worker()
    way.tasks(worker, 2)
    running, over = way.begun(worker), way.begun(worker)
    way.crew.report(c.Complete(task_id=over.task_id, epoch=over.epoch, proof=over.proof, exit_code=0))
    held = ((running.task_id, running.epoch), (over.task_id, over.epoch))
    heard = way.crew.heartbeat(
        c.Heartbeat(worker_id=worker, attempts=held, proofs=(running.proof, over.proof)), wait_s=0
    )
    assert (heard.known, {order.task_id: order.current for order in heard.attempts}) == (
        True,
        {running.task_id: True, over.task_id: False},
    )


def test_who_is_not_known_is_told_so(way: Way) -> None:
    if way.far:  # there it has nothing to say it with
        way.worker()
        with pytest.raises(Forbidden, match="is not yours"):
            way.crew.heartbeat(c.Heartbeat(worker_id="worker-nobodyxx", attempts=()), wait_s=0)
        return
    heard = way.crew.heartbeat(c.Heartbeat(worker_id="worker-nobodyxx", attempts=()), wait_s=0)
    assert not heard.known
    with pytest.raises(Conflict):
        way.crew.claim(c.Claim(worker_id="worker-nobodyxx", request_id="r"), wait_s=0)


def test_who_has_gone_gets_nothing_more(way: Way) -> None:
    worker = way.worker()
    way.tasks(worker)
    way.crew.deregister(c.Deregister(worker_id=worker, reason="drained"))
    with pytest.raises(Conflict):
        way.crew.claim(c.Claim(worker_id=worker, request_id="r"), wait_s=0)


@pytest.mark.parametrize(
    "command", [c.Complete(result="{", exit_code=0, **JOB), c.Declare(text="nul", **JOB)]
)
def test_a_result_that_nobody_could_read_is_not_taken(way: Way, command: c.AttemptCommand) -> None:
    worker = way.worker()
    way.tasks(worker)
    job = way.begun(worker)
    about = {"task_id": job.task_id, "epoch": job.epoch, "proof": job.proof}
    with pytest.raises(BadInput, match="the result is not JSON"):
        way.crew.report(replace(command, **about))
    assert way.crew.report(c.Complete(result='"good"', exit_code=0, **about)).status is TaskStatus.COMPLETED


def test_where_nobody_answers_it_is_unavailable(tmp_path: Path) -> None:
    for crew in (HttpCrew(tmp_path / "none.sock"), HttpCrew("http://127.0.0.1:1", SECRET)):
        with pytest.raises(Unavailable):
            crew.claim(c.Claim(worker_id="worker-nobodyxx", request_id="r"), wait_s=0)
