"""What webhooks are told is written with the move, and what became of telling it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import standardwebhooks.webhooks
from engine_rig import W1, Rig, complete, fail
from msgspec.structs import replace
from standardwebhooks import Webhook as Receiver

from muster.engine.batch import drive
from muster.engine.services.webhook_sender import WebhookSender
from muster.model import commands as c
from muster.model.errors import Conflict, NotAllowed, NotFound, Unavailable
from muster.model.states import ErrorKind
from muster.model.task import Now
from muster.model.webhooks import TRIES_MAX, HookKind, HookMessage, Webhook, new_secret

SECRET = new_secret(b"s" * 32)


class Post:
    """A receiver that answers what it is told to; `status` 0: it cannot be reached."""

    def __init__(self) -> None:
        self.status = 204
        self.took: list[tuple[str, dict[str, Any]]] = []
        self.refuses: set[str] = set()
        """Messages that have this in them."""

    async def __call__(self, url: str, headers: Mapping[str, str], body: bytes) -> int:
        content = json.loads(body)
        if not self.status:
            raise Unavailable("connection refused")
        if url.startswith("http://metadata"):
            raise NotAllowed("where clouds keep their secrets")
        if any(word in body.decode() for word in self.refuses):
            return 500
        assert headers["webhook-signature"].startswith("v1,")
        self.took.append((headers["webhook-id"], content))
        return self.status


class Hooked:
    def __init__(self, rig: Rig) -> None:
        self.rig, self.post = rig, Post()
        self.term = term = rig.new_boot().term
        self.sender = WebhookSender(
            rig.clock, rig.store.reads, rig, self.post, lambda sealed, _: sealed, term=term
        )

    def add(self, *kinds: HookKind, url: str = "https://example.org/hook") -> int:
        added: int = self.rig.do(c.AddWebhook(url=url, kinds=kinds, sealed=SECRET, actor="ada")).id
        return added

    def messages(self, webhook_id: int) -> list[HookMessage]:
        return drive(self.rig.reads.messages(webhook_id, 1000))[::-1]

    def told(self, webhook_id: int) -> list[dict[str, Any]]:
        return [json.loads(one.body) for one in self.messages(webhook_id)]

    def webhook(self) -> Webhook:
        (found,) = drive(self.rig.reads.webhooks())
        return found

    def send(self) -> None:
        async def round_() -> None:
            await self.sender.run_once()
            await self.sender.settle()
            await self.sender.run_once()

        asyncio.run(round_())


@pytest.fixture
def hooked(rig: Rig) -> Hooked:
    return Hooked(rig)


def test_a_status_is_told_in_the_words_of_its_receivers(hooked: Hooked, rig: Rig) -> None:
    rig.register()
    rig.enqueue({"before": ()})
    webhook_id = hooked.add(HookKind.STATUS_CHANGED)
    rig.enqueue({"a": ()})
    first, second = rig.started()
    job = next(one for one in (first, second) if one.key == "a")
    rig.do(complete(job))
    told = [one for one in hooked.told(webhook_id) if one["taskId"] == job.task_id]
    assert [(one["previousStatus"], one["newStatus"]) for one in told] == [
        ("PENDING", "ASSIGNED"),
        ("ASSIGNED", "RUNNING"),
        ("RUNNING", "COMPLETED"),
    ]
    assert told[0] == {
        "event": "task.status_changed",
        "taskId": job.task_id,
        "previousStatus": "PENDING",
        "newStatus": "ASSIGNED",
        "workspaceId": 1,
        "timestamp": "2027-01-15T08:00:00.000Z",
    }


def test_each_kind_is_told_to_who_wants_it(hooked: Hooked, rig: Rig) -> None:
    everything, plans = hooked.add(), hooked.add(HookKind.PLAN_SETTLED, HookKind.PLAN_PAUSED)
    rig.register()
    rig.enqueue({"a": (), "b": ("a",)})
    rig.do(c.PausePlan(plan="api", actor="ada"))
    rig.do(c.ResumePlan(plan="api", actor="ada"))
    (job,) = rig.started()
    rig.do(fail(job, ErrorKind.INVALID))
    rig.do(c.MarkWorkerDead(worker_id=W1, term=rig.new_boot().term, reason="gone", heard_mono_ms=None))
    kinds = [one["event"] for one in hooked.told(everything) if one["event"] != "task.status_changed"]
    assert kinds == ["plan.paused", "task.needs_person", "plan.settled", "leader.changed", "agent.failed"]
    paused, settled = hooked.told(plans)
    assert paused["reason"] == "plan api paused by ada"
    assert (settled["plan"], settled["counts"]) == ("api", {"FAILED": 1, "PENDING": 1})


def test_a_plan_that_is_settled_is_told_once_until_it_is_not(hooked: Hooked, rig: Rig) -> None:
    webhook_id = hooked.add(HookKind.PLAN_SETTLED)
    rig.register()
    ids = dict(zip("abc", rig.enqueue({"a": (), "b": ("a",), "c": ("a",)}).task_ids, strict=True))
    (job,) = rig.started()
    rig.do(fail(job, ErrorKind.INVALID))
    rig.do(c.Cancel(task_id=ids["b"], actor="ada", reason="no"))
    rig.do(c.Cancel(task_id=ids["c"], actor="ada", reason="no"))
    assert [one["counts"] for one in hooked.told(webhook_id)] == [{"FAILED": 1, "PENDING": 2}]
    rig.do(c.Retry(task_id=ids["a"], actor="ada"))
    (job,) = rig.started()
    rig.do(complete(job))
    assert [one["counts"] for one in hooked.told(webhook_id)][1:] == [{"CANCELLED": 2, "COMPLETED": 1}]
    (more,) = rig.enqueue({"d": ()}).task_ids
    assert len(hooked.told(webhook_id)) == 2
    rig.do(c.Cancel(task_id=more, actor="ada", reason="no"))
    assert len(hooked.told(webhook_id)) == 3, "there was something to do in between"


def test_a_silent_worker_is_stale(hooked: Hooked, rig: Rig) -> None:
    webhook_id = hooked.add(HookKind.AGENT_STALE, HookKind.AGENT_FAILED)
    rig.register()
    term = rig.new_boot().term
    (worker,) = drive(rig.reads.living_workers())
    rig.clock.advance(600)
    dead = c.MarkWorkerDead(worker_id=W1, term=term, reason="silent", heard_mono_ms=worker.heard_mono_ms)
    rig.do(dead)
    told = [(one["event"], one["workerId"], one["agents"]) for one in hooked.told(webhook_id)]
    assert told == [("agent.stale", W1, ["claude"])]


def test_a_new_owner_knows_the_webhooks(tmp_path: Path) -> None:
    rig = Rig(path=tmp_path / "muster.db")
    hooked = Hooked(rig)
    webhook_id = hooked.add(HookKind.STATUS_CHANGED)
    rig.reopen()
    rig.register()
    rig.enqueue({"a": ()})
    rig.claim()
    assert [one["newStatus"] for one in hooked.told(webhook_id)] == ["ASSIGNED"]


def test_the_reference_library_takes_the_signature(rig: Rig) -> None:
    seen: list[tuple[dict[str, str], bytes]] = []

    async def post(url: str, headers: Mapping[str, str], body: bytes) -> int:
        seen.append((dict(headers), body))
        return 200

    hooked = Hooked(rig)
    hooked.sender._post = post
    rig.clock.present = now_of_the_library(rig)
    webhook_id = hooked.add()
    rig.do(c.TestWebhook(webhook_id=webhook_id, actor="ada"))
    hooked.send()
    ((headers, body),) = seen
    assert Receiver(SECRET).verify(body, headers)["event"] == "webhook.test"
    with pytest.raises(Exception, match="No matching signature"):
        Receiver(SECRET).verify(body.replace(b"test", b"tost"), headers)
    assert hooked.webhook().last_delivered_at_ms == rig.clock.present.wall_ms


def now_of_the_library(rig: Rig) -> Any:
    """It refuses what is older than five minutes, by the system's clock."""
    return replace(rig.clock.present, wall_ms=int(time.time() * 1000))


def test_of_one_task_nothing_overtakes(hooked: Hooked, rig: Rig) -> None:
    webhook_id = hooked.add(HookKind.STATUS_CHANGED)
    rig.register()
    rig.enqueue({"a": (), "b": ()})
    jobs = {job.key: job for job in rig.started()}
    rig.do(complete(jobs["b"]))
    hooked.post.refuses.add(f'"taskId":{jobs["a"].task_id}')
    hooked.send()
    assert {one["taskId"] for _, one in hooked.post.took} == {jobs["b"].task_id}
    assert [one["newStatus"] for _, one in hooked.post.took] == ["ASSIGNED", "RUNNING", "COMPLETED"]
    rig.do(complete(jobs["a"]))
    hooked.post.refuses.clear()
    hooked.send()
    assert len(hooked.post.took) == 3, "the first of them waits for its next try"
    rig.clock.advance(10)
    hooked.send()
    of_a = [one["newStatus"] for _, one in hooked.post.took if one["taskId"] == jobs["a"].task_id]
    assert of_a == ["ASSIGNED", "RUNNING", "COMPLETED"]
    assert len({message_id for message_id, _ in hooked.post.took}) <= len(hooked.messages(webhook_id))


def test_many_failures_disable_it_and_a_person_is_told(hooked: Hooked, rig: Rig) -> None:
    webhook_id = hooked.add()
    rig.do(c.TestWebhook(webhook_id=webhook_id, actor="ada"))
    hooked.post.status = 0
    waits = []
    for _ in range(TRIES_MAX):
        hooked.send()
        (message,) = hooked.messages(webhook_id)
        if message.next_at_ms is not None:
            waits.append((message.next_at_ms - rig.clock.present.wall_ms) / 1000)
            rig.clock.advance(waits[-1])
    assert waits[:4] == [3.75, 7.5, 15.0, 30.0] and max(waits) == 2700.0
    assert (message.tries, message.next_at_ms) == (TRIES_MAX, None)
    assert "connection refused" in hooked.webhook().disabled
    (said,) = drive(rig.queries.inbox()).webhooks
    assert said.id == webhook_id
    assert [one.event for one in rig.events() if one.event == "webhook_disabled"]
    with pytest.raises(Conflict, match="is disabled: 20 tries failed in a row"):
        rig.do(c.TestWebhook(webhook_id=webhook_id, actor="ada"))
    hooked.post.status = 200
    assert rig.do(c.ResendMessages(webhook_id=webhook_id, actor="ada")).messages == 1
    hooked.send()
    assert [message_id for message_id, _ in hooked.post.took] == [message.message_id]
    assert drive(rig.queries.inbox()).webhooks == ()
    again = c.ResendMessages(webhook_id=webhook_id, message_id=message.message_id, actor="ada")
    assert rig.do(again).messages == 1
    hooked.send()
    assert [message_id for message_id, _ in hooked.post.took] == [message.message_id] * 2


def test_a_receiver_that_is_gone_is_left_alone(hooked: Hooked, rig: Rig) -> None:
    webhook_id = hooked.add()
    rig.do(c.TestWebhook(webhook_id=webhook_id, actor="ada"))
    hooked.post.status = 410
    hooked.send()
    assert "410" in hooked.webhook().disabled
    rig.do(c.RemoveWebhook(webhook_id=webhook_id, actor="ada"))
    assert (drive(rig.reads.webhooks()), hooked.messages(webhook_id)) == ([], [])
    with pytest.raises(NotFound):
        rig.do(c.RemoveWebhook(webhook_id=webhook_id, actor="ada"))
    rig.enqueue({"a": ()})
    hooked.send()


class Signed:
    """A receiver that goes by the reference library, and by the clock that it and its server share."""

    def __init__(self, hooked: Hooked, monkeypatch: pytest.MonkeyPatch) -> None:
        self._hooked = hooked
        self.statuses: list[int] = []
        """What it answers, one after the other; then 200."""
        self.took: list[str] = []
        self.stamps: list[int] = []
        self.kept: list[tuple[dict[str, str], bytes]] = []
        hooked.sender._post = self
        monkeypatch.setattr(standardwebhooks.webhooks, "datetime", self)

    def now(self, tz: object = None) -> datetime:
        return datetime.fromtimestamp(self._hooked.rig.clock.present.wall_ms / 1000, UTC)

    def fromtimestamp(self, stamp: float, tz: object = None) -> datetime:
        return datetime.fromtimestamp(stamp, UTC)

    async def __call__(self, url: str, headers: Mapping[str, str], body: bytes) -> int:
        Receiver(SECRET).verify(body, dict(headers))
        self.stamps.append(int(headers["webhook-timestamp"]))
        self.kept.append((dict(headers), body))
        status = self.statuses.pop(0) if self.statuses else 200
        if status == 200:
            self.took.append(headers["webhook-id"])
        return status


def set_clock(hooked: Hooked, seconds: float, *, seen: bool = True) -> None:
    """`seen`: the coordinator has noticed it."""
    clock, moved_ms = hooked.rig.clock, round(seconds * 1000)
    clock.present = replace(clock.present, wall_ms=clock.present.wall_ms + moved_ms)
    jumped_ms = moved_ms if seen else 0
    hooked.rig.do(c.SetClock(term=hooked.term, boot_id="boot-a", offset_ms=0, jumped_ms=jumped_ms))


MONTH_S = 30 * 86_400.0


@pytest.mark.promise("S15")
@pytest.mark.parametrize("seconds", [-MONTH_S, MONTH_S, -3600.0, 3600.0])
def test_what_is_sent_after_a_jump_of_the_clock_is_stamped_with_its_time_and_comes_soon(
    hooked: Hooked, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """Not with that of the event, nor of an earlier try: receivers refuse what is older than five minutes."""
    rig, receiver = hooked.rig, Signed(hooked, monkeypatch)
    webhook_id = hooked.add()
    receiver.statuses = [503]
    rig.do(c.TestWebhook(webhook_id=webhook_id, actor="ada"))
    hooked.send()
    set_clock(hooked, seconds)
    rig.clock.advance(5)
    hooked.send()
    (message,) = hooked.messages(webhook_id)
    assert receiver.took == [message.message_id]
    assert receiver.stamps[1] - receiver.stamps[0] == round(seconds) + 5
    (old, body) = receiver.kept[0]
    with pytest.raises(Exception, match="Message timestamp too"):
        Receiver(SECRET).verify(body, old)


def test_it_is_stamped_by_the_stores_clock_where_that_of_the_leaders_host_is_wrong(
    hooked: Hooked, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver, right = Signed(hooked, monkeypatch), hooked.rig.clock.present

    async def now(here: Now) -> Now:
        return right

    monkeypatch.setattr(hooked.sender._reads, "now", now)
    wrong = replace(right, wall_ms=right.wall_ms + 600_000)
    monkeypatch.setattr(hooked.sender, "clock", SimpleNamespace(now=lambda: wrong))
    hooked.rig.do(c.TestWebhook(webhook_id=hooked.add(), actor="ada"))
    hooked.send()
    assert receiver.stamps == [right.wall_ms // 1000]


@pytest.mark.promise("S15")
def test_a_clock_that_was_wrong_before_the_start_keeps_no_message_for_a_month(
    hooked: Hooked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has seen that jump."""
    rig, receiver = hooked.rig, Signed(hooked, monkeypatch)
    webhook_id = hooked.add()
    receiver.statuses = [503]
    rig.do(c.TestWebhook(webhook_id=webhook_id, actor="ada"))
    hooked.send()
    set_clock(hooked, -MONTH_S, seen=False)
    rig.clock.advance(3600)
    hooked.send()
    assert len(receiver.took) == 1
