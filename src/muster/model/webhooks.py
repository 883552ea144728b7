"""Webhooks: what others are told of, in which words, and how they can tell that it was us.

The signature is that of Standard Webhooks (standardwebhooks.com); `task.status_changed` has the fields
that receivers of other orchestrators know.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum

import msgspec
from msgspec import Struct

from muster.model.errors import Unavailable
from muster.model.events import Event
from muster.model.notify import Matter, of_status
from muster.model.pools import Pool
from muster.model.shown import clean
from muster.model.states import PauseReason, TaskStatus, asks_a_person


class HookKind(StrEnum):
    """What may be told."""

    STATUS_CHANGED = "task.status_changed"
    NEEDS_PERSON = "task.needs_person"
    OVERDUE = "task.overdue"
    AGENT_STALE = "agent.stale"
    AGENT_FAILED = "agent.failed"
    LEADER_CHANGED = "leader.changed"
    PLAN_SETTLED = "plan.settled"
    PLAN_PAUSED = "plan.paused"
    PROVIDER_WAITS = "provider.waits"
    TEST = "webhook.test"
    """When a person asks for it, whatever else a webhook wants."""


SECRET_PREFIX = "whsec_"  # noqa: S105 - of any secret
TRIES_MAX = 20
"""Of one message: with the waits in between they take half a day."""
GATHERED_PREFIX = "digest_"
"""Of messages to people, as they are sent: one matter or several."""
ASKED = "asked for again"
"""Of a message to people that a person wants to have again, until that was tried."""
GONE = 410
"""By this answer a receiver says that it wants no more, ever."""


TEST_TRIED_S = 25.0
"""How long the try of a test may take, and the wait for its turn."""


class Webhook(Struct, frozen=True, rename="camel"):
    id: int
    workspace_id: int
    url: str
    kinds: tuple[HookKind, ...]
    """Empty: all."""
    created_by: str
    created_at_ms: int
    failures: int = 0
    """Tries that failed since one was taken."""
    last_delivered_at_ms: int | None = None
    disabled: str = ""
    """Why nothing is sent there any more; empty where it is."""


class WebhookRow(Webhook, frozen=True, rename="camel"):
    """What the store keeps of one, or of a channel: who is told by the same outbox."""

    channel: str = ""
    """Its name; empty for a webhook."""
    matters: tuple[Matter, ...] = ()
    """What a channel is told."""

    def wants(self, told: Telling) -> bool:
        if self.disabled:
            return False
        if told.kind is HookKind.TEST:
            return True
        return told.matter in self.matters if self.channel else not self.kinds or told.kind in self.kinds

    @property
    def shown(self) -> Webhook:
        """What people see of a webhook."""
        return Webhook(*(getattr(self, name) for name in Webhook.__struct_fields__))


class NewMessage(Struct, frozen=True, rename="camel"):
    """What one webhook is to be told."""

    webhook_id: int
    message_id: str
    """The header `webhook-id`: the same however often it is sent."""
    kind: HookKind
    subject: str
    """Of one subject they are told one after the other."""
    body: str
    created_at_ms: int
    next_at_ms: int | None
    """When it is tried; None: it was taken, or given up."""


class HookMessage(NewMessage, frozen=True):
    """What is to be told to one webhook: written with the move that it tells of."""

    id: int
    """In the order in which they were written."""
    tries: int
    delivered_at_ms: int | None
    said: str
    """What the last try has met with."""

    @property
    def gathered(self) -> bool:
        """It stands in a message to people, with all others of the same `message_id`."""
        return self.message_id.startswith(GATHERED_PREFIX)

    @property
    def asked(self) -> bool:
        """A person wants it whatever has become of what it tells."""
        return self.said == ASKED


class Telling(Struct, frozen=True):
    """One thing to tell, to whoever wants it."""

    kind: HookKind
    subject: str
    fields: Mapping[str, object]
    matter: Matter | None = None
    """None: no person needs to know."""

    def body(self, workspace_id: int, at_ms: int) -> str:
        matter = {"matter": self.matter} if self.matter else {}
        told = {"event": self.kind, **self.fields, **matter}
        told |= {"workspaceId": workspace_id, "timestamp": time_text(at_ms)}
        return msgspec.json.encode(told).decode()


def of_task(event: Event, paused: PauseReason | None) -> list[Telling]:
    """What a task's event tells; `paused` is why the task is paused now."""
    subject, found = f"task {event.task_id}", []
    before, after = event.previous_status, event.new_status
    if before is not None and before is not after:
        moved = {"taskId": event.task_id, "previousStatus": before, "newStatus": after}
        found.append(Telling(HookKind.STATUS_CHANGED, subject, moved))
    about = {"taskId": event.task_id, "reason": event.message}
    if before is not after and asks_a_person(after, paused):
        fields, matter = {**about, "status": after}, of_status(after, paused)
        found.append(Telling(HookKind.NEEDS_PERSON, subject, fields, matter))
    if event.event == "overdue":
        found.append(Telling(HookKind.OVERDUE, subject, about))
    return found


_PAUSED_BY: Mapping[str, Matter] = {PauseReason.BUDGET: Matter.BUDGET, PauseReason.BREAKER: Matter.NEEDS_YOU}
"""Whoever has paused a plan has not forgotten it."""


def of_plan(event: Event) -> list[Telling]:
    if event.new_status is not TaskStatus.PAUSED or event.previous_status is TaskStatus.PAUSED:
        return []
    about = {"planId": event.task_id, "reason": event.message}
    matter = _PAUSED_BY.get(msgspec.json.decode(event.details).get("reason"))
    return [Telling(HookKind.PLAN_PAUSED, f"plan {event.task_id}", about, matter)]


def settled(plan_id: int, plan: str, counts: Mapping[str, int]) -> Telling:
    fields = {"planId": plan_id, "plan": plan, "counts": counts}
    return Telling(HookKind.PLAN_SETTLED, f"plan {plan_id}", fields, Matter.SETTLED)


def of_pool(name: str, pool: Pool) -> Telling:
    """A provider that takes nothing for longer than Muster would have waited by itself."""
    until = None if pool.until_ms is None else time_text(pool.until_ms)
    fields = {"pool": name, "kind": pool.kind, "reason": pool.reason, "until": until}
    matter = Matter.NEEDS_YOU if until is None else Matter.QUOTA
    return Telling(HookKind.PROVIDER_WAITS, f"pool {name}", fields, matter)


def of_worker(kind: HookKind, worker_id: str, agents: Sequence[str], reason: str) -> Telling:
    return Telling(kind, f"worker {worker_id}", {"workerId": worker_id, "agents": agents, "reason": reason})


def of_leader(term: int) -> Telling:
    return Telling(HookKind.LEADER_CHANGED, "coordinator", {"term": term})


def untaken(name: str, said: str | None, messages: str) -> Unavailable:
    """What a person is told of a test that was not taken: `said` is what its try has met with, None where it was
    not tried in time; `messages` shows what comes of it."""
    if said is None:
        return Unavailable(f"{name}: the test is still on its way", messages)
    return Unavailable(f"{name} has not taken it: {clean(said)}", f"it is tried again: {messages}")


def sealed_for(workspace_id: int) -> str:
    """The purpose of a webhook's secret in the vault."""
    return f"webhook of workspace {workspace_id}"


def new_secret(random: bytes) -> str:
    return SECRET_PREFIX + base64.b64encode(random).decode()


def headers(message_id: str, body: bytes, secret: str, wall_s: int) -> dict[str, str]:
    """Who has the secret can tell by these that the message is ours, and that it is not an old one again.

    Raises ValueError where the secret is no Base64.
    """
    signed = f"{message_id}.{wall_s}.".encode() + body
    key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    mac = base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
    return {"webhook-id": message_id, "webhook-timestamp": str(wall_s), "webhook-signature": f"v1,{mac}"}


def answered(status: int) -> str:
    """What is kept of a try."""
    redirect = ", and redirects are not followed" if 300 <= status < 400 else ""
    return f"answered {status}{redirect}"


def time_text(at_ms: int) -> str:
    stamp = datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return stamp.replace("+00:00", "Z")
