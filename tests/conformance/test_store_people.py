"""What every store promises of people, agents, secrets and webhooks."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from store_rows import NOW, Subject, make_attempt, new_task

from muster.model.access import Member, Right, Role, Token
from muster.model.agents import AgentBeat, AgentRow, Condition
from muster.model.notify import Matter
from muster.model.rows import DEFAULT_WORKSPACE, Workspace
from muster.model.secrets import Secret
from muster.model.states import TaskStatus
from muster.model.webhooks import HookKind, NewMessage, WebhookRow

ELSEWHERE = 70


@pytest.fixture
def two(subject: Subject) -> Subject:
    """A store with another workspace."""
    subject.tx("add_workspace", Workspace(ELSEWHERE, "other", 5))
    return subject


def make_token(number: int, **changes: Any) -> Token:
    token = Token(
        id=number,
        workspace_id=DEFAULT_WORKSPACE,
        name="ci",
        member="ada",
        role=Role.MEMBER,
        scopes=(Right.READ, Right.WORK),
        created_by="eve",
        created_at_ms=7,
        expires_at_ms=9,
        revoked_at_ms=None,
        last_used_at_ms=None,
    )
    return replace(token, **changes)


def make_agent(name: str, **changes: Any) -> AgentRow:
    agent = AgentRow(
        workspace_id=DEFAULT_WORKSPACE,
        name=name,
        label="Claude 🐙",
        model="large",
        capabilities=("rust",),
        profiles=("writer",),
        slots=2,
        heartbeat_s=30,
        stale_s=90,
        coordinator_enabled=False,
        metadata={"team": {"of": [1, None]}},
        draining="",
        worker_id="agent-aaaaaaaa",
        registered_by="ada",
        registered_at_ms=NOW.wall_ms,
    )
    return replace(agent, **changes)


def make_webhook(number: int, **changes: Any) -> WebhookRow:
    webhook = WebhookRow(number, DEFAULT_WORKSPACE, "https://a.example/x", (HookKind.OVERDUE,), "ada", 5)
    return replace(webhook, **changes)


def make_message(webhook_id: int, name: str, subject: str, next_at_ms: int | None = 10) -> NewMessage:
    return NewMessage(
        webhook_id=webhook_id,
        message_id=name,
        kind=HookKind.OVERDUE,
        subject=subject,
        body='{"a": "ü"}',
        created_at_ms=10,
        next_at_ms=next_at_ms,
    )


def test_workspaces_are_told_the_oldest_first(two: Subject) -> None:
    assert [(one.id, one.name) for one in two.read("workspaces")] == [(1, "default"), (ELSEWHERE, "other")]
    assert two.tx("workspaces") == [1, ELSEWHERE]
    assert (two.tx("workspace_named", "other"), two.tx("workspace_named", "nobody's")) == (ELSEWHERE, None)
    with pytest.raises(two.integrity_error):
        two.tx("add_workspace", Workspace(71, "other", 5))


def test_members_are_put_and_dropped(two: Subject) -> None:
    ada, bob = Member("ada", Role.OWNER, 5), Member("bob", Role.VIEWER, 6)
    two.tx("put_member", bob)
    two.tx("put_member", ada)
    assert two.tx("members") == two.read("members") == [ada, bob]
    two.tx("put_member", replace(bob, role=Role.ADMIN))
    two.tx("drop_member", "ada")
    assert two.tx("members") == [replace(bob, role=Role.ADMIN)]
    assert two.of(ELSEWHERE).tx("members") == two.of(ELSEWHERE).read("members") == []


def test_a_token_is_found_by_its_hash_with_its_member(two: Subject) -> None:
    first, second = make_token(3), make_token(4, expires_at_ms=None, scopes=())
    assert two.tx("add_token", second, "hash-4")
    assert two.tx("add_token", first, "hash-3")
    ada = Member("ada", Role.OWNER, 5)
    assert two.read("token", "hash-3") == (first, None), "its member is gone"
    two.tx("put_member", ada)
    assert two.read("token", "hash-4") == (second, ada)
    assert two.read("token", "hash-9") is None
    used = replace(first, revoked_at_ms=11, last_used_at_ms=10)
    two.tx("update_token", used)
    assert two.tx("tokens") == two.read("tokens") == [used, second]
    assert two.tx("token_of_id", 3) == two.read("token_of_id", 3) == used
    assert two.tx("token_of_id", 9) is None
    other = two.of(ELSEWHERE)
    assert (other.tx("token_of_id", 3), other.read("tokens")) == (None, [])
    assert not two.tx("add_token", make_token(5), "hash-4")
    assert two.read("tokens") == [used, second]


def test_secrets_are_kept_sealed(two: Subject) -> None:
    key, other = Secret("KEY", "ada", 5), Secret("OTHER", "bob", 6)
    two.tx("put_secret", other, "sealed other")
    two.tx("put_secret", key, "sealed key")
    assert two.tx("secrets") == two.read("secrets") == [key, other]
    two.tx("reseal_secret", "KEY", "sealed anew")
    two.tx("reseal_secret", "NOBODY", "x")
    assert two.tx("sealed_secrets") == {"KEY": "sealed anew", "OTHER": "sealed other"}
    two.tx("put_secret", replace(key, set_by="eve"), "third")
    two.tx("drop_secret", "OTHER")
    assert two.read("sealed_secrets") == {"KEY": "third"}
    assert two.read("secrets") == [replace(key, set_by="eve")]
    assert two.of(ELSEWHERE).read("sealed_secrets") == {} == two.of(ELSEWHERE).tx("sealed_secrets")


def test_secrets_of_input_contexts_are_kept_with_their_task(two: Subject) -> None:
    two.write(
        new_tasks=[new_task(1), new_task(2, input_sealed="two"), new_task(4, input_sealed="four")],
        opened=[make_attempt(2, 1, agent="dev"), make_attempt(1, 1, agent="dev")],
    )
    rows = [(2, "two", TaskStatus.PENDING), (4, "four", TaskStatus.PENDING)]
    assert two.tx("sealed_inputs", 0, 9) == two.read("sealed_inputs", 0, 9) == rows
    assert two.tx("sealed_inputs", 0, 1) == rows[:1] and two.read("sealed_inputs", 2, 9) == rows[1:]
    assert [two.read("sealed_input", number) for number in (1, 2, 3)] == ["", "two", ""]
    assert two.tx("sealed_of_agent", "dev") == two.read("sealed_of_agent", "dev") == [2]
    assert two.read("sealed_of_agent", "other") == []
    other = two.of(ELSEWHERE)
    other.tx("reseal_input", 2, "foreign")
    two.tx("reseal_input", 2, "anew")
    assert two.tx("sealed_input", 2) == "anew"
    assert [bool(text.has_secrets) for text in two.tx("job_texts", [1, 2])] == [False, True]
    assert other.tx("sealed_input", 2) == other.read("sealed_input", 2) == ""
    assert other.tx("sealed_inputs", 0, 9) == other.read("sealed_inputs", 0, 9) == []
    assert other.tx("sealed_of_agent", "dev") == other.read("sealed_of_agent", "dev") == []


def test_agents_are_put_and_found_by_their_token(two: Subject) -> None:
    first, second = make_agent("claude"), make_agent("aider", coordinator_enabled=True, metadata={})
    two.tx("put_agent", first)
    two.tx("put_agent", second)
    two.of(ELSEWHERE).tx("put_agent", make_agent("claude", workspace_id=ELSEWHERE))
    assert two.tx("agents") == two.read("agents") == [second, first]
    two.tx("set_agent_token", "claude", "hash-1")
    changed = replace(first, draining="by ada", slots=3)
    two.tx("put_agent", changed)
    assert two.read("agent_of_token", "hash-1") == (DEFAULT_WORKSPACE, "claude")
    two.tx("set_agent_token", "claude", "hash-2")
    assert two.read("agent_of_token", "hash-1") is None
    two.tx("drop_agent", "claude")
    assert two.read("agents") == [second]
    assert [agent.name for agent in two.of(ELSEWHERE).tx("agents")] == ["claude"]


def test_what_an_agent_says_of_itself_goes_with_it(subject: Subject) -> None:
    subject.tx("put_agent", make_agent("claude"))
    beats = [
        AgentBeat(at_ms, Condition.DEGRADED, 7, 50, "späť", 100, None, {"a": [1]}) for at_ms in (1, 2, 3)
    ]
    for beat in beats:
        subject.tx("add_beat", "claude", beat)
    assert subject.read("beats", "claude", 2) == [beats[2], beats[1]]
    assert subject.read("beats", "aider", 2) == []
    subject.tx("drop_agent", "claude")
    assert subject.read("beats", "claude", 2) == []


def test_an_agents_tasks_are_those_whose_newest_attempt_is_its_own(subject: Subject) -> None:
    subject.add(*(new_task(number, epoch=2 if number == 3 else 1) for number in (1, 2, 3)))
    subject.write(
        opened=[
            make_attempt(1, 1),
            make_attempt(2, 1, agent="codex"),
            make_attempt(3, 1, agent="codex", status="lost"),
            make_attempt(3, 2),
        ]
    )
    assert subject.read("tasks_of_agent", "claude", 10) == [3, 1]
    assert subject.read("tasks_of_agent", "claude", 1) == [3]
    assert subject.read("tasks_of_agent", "codex", 10) == [2]


def test_webhooks_are_kept_with_their_sealed_secret(two: Subject) -> None:
    first = make_webhook(3, channel="phone", matters=(Matter.DEAD, Matter.QUOTA))
    second = make_webhook(4, kinds=())
    two.tx("add_webhook", second, "sealed 4")
    two.tx("add_webhook", first, "sealed 3")
    assert two.tx("webhooks") == two.read("webhooks") == [first, second]
    two.tx("reseal_webhook", 4, "anew")
    assert [two.read("webhook_secret", number) for number in (3, 4, 9)] == ["sealed 3", "anew", None]
    assert two.of(ELSEWHERE).read("webhook_secret", 3) is two.of(ELSEWHERE).tx("webhook_secret", 3) is None
    assert two.tx("webhook_secret", 3) == "sealed 3"
    changed = replace(first, failures=2, last_delivered_at_ms=9, disabled="gone", matters=(Matter.DEAD,))
    two.tx("update_webhook", changed)
    two.tx("add_messages", [make_message(4, "m", "task 1")])
    two.tx("drop_webhook", 4)
    assert two.tx("webhooks") == [changed]
    assert two.read("messages", 4, 10) == []
    assert two.of(ELSEWHERE).tx("webhooks") == []


def test_of_one_subject_a_message_is_due_after_those_before_it(subject: Subject) -> None:
    subject.tx("add_webhook", make_webhook(3), "x")
    told = [("a", "task 1", 10), ("b", "task 1", 10), ("c", "task 2", 20), ("d", "task 3", None)]
    subject.tx("add_messages", [make_message(3, name, about, at_ms) for name, about, at_ms in told])

    def due(wall_ms: int) -> list[str]:
        return [message.message_id for message in subject.read("due_messages", 3, wall_ms, 10)]

    assert (due(9), due(10), due(20)) == ([], ["a"], ["a", "c"])
    assert [one.message_id for one in subject.read("waiting_messages", 3, 2)] == ["a", "b"]
    newest, *_, oldest = subject.read("messages", 3, 10)
    assert (newest.message_id, oldest.message_id) == ("d", "a")
    assert subject.tx("message", oldest.id) == oldest
    assert subject.tx("message", oldest.id + 1000) is None
    taken = replace(oldest, tries=2, next_at_ms=None, delivered_at_ms=11, said="200")
    subject.tx("update_message", taken)
    assert subject.tx("message", oldest.id) == taken
    assert due(20) == ["b", "c"]
    subject.tx("gather_message", oldest.id, "together")
    assert subject.tx("message", oldest.id) == replace(taken, message_id="together")
    subject.tx("gather_message", oldest.id, "a")
    assert subject.tx("requeue_messages", 3, 30, "nobody") == 0
    assert subject.tx("requeue_messages", 3, 30, "a") == 1
    again = subject.tx("message", oldest.id)
    assert (again.tries, again.next_at_ms, again.delivered_at_ms, again.said) == (0, 30, None, "200")
    assert subject.tx("requeue_messages", 3, 30, "a", "wanted") == 1
    assert subject.tx("message", oldest.id).said == "wanted"
    subject.tx("update_message", taken)
    assert subject.tx("requeue_messages", 3, 40, None) == 3, "what was taken is not told again"
    assert (due(39), due(40)) == ([], ["b", "c", "d"])
    subject.tx("update_webhook", make_webhook(3, disabled="gone"))
    assert due(40) == []


def test_no_message_is_tried_again_later_than_a_bound(subject: Subject) -> None:
    subject.tx("add_webhook", make_webhook(3), "x")
    times = [("late", 9_000), ("soon", 20), ("sent", None)]
    subject.tx("add_messages", [make_message(3, name, name, at_ms) for name, at_ms in times])
    subject.whole("bound_messages", 500)
    found = {message.message_id: message.next_at_ms for message in subject.read("messages", 3, 10)}
    assert found == {"late": 500, "soon": 20, "sent": None}
