"""What stands in Valkey, under the names that watchers know, and how long."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from runtimes import Servers, eventually, over_valkey, own_namespace
from test_runtimes import PICTURE
from valkey import Valkey

from muster.model.errors import BadConfig
from muster.ports.runtime import READY, RECOVERY, Beat, CrewMember, HeldTask, LiveEvent, Picture
from muster.runtimes.valkey.address import address_of
from muster.runtimes.valkey.keys import ValkeyKeys
from patience import PATIENCE_S


class Site:
    def __init__(self, url: str, client: Valkey) -> None:
        self.url, self.client = url, client
        self.namespace = own_namespace()
        self.keys = ValkeyKeys(self.namespace)

    def __getitem__(self, name: str) -> str:
        """A key as it stands in Valkey."""
        return f"{self.namespace}:{name}"


@pytest.fixture
def site(valkey: str) -> Iterator[Site]:
    with closing(Valkey.from_url(valkey, decode_responses=True)) as client:
        yield Site(valkey, client)


def test_without_a_namespace_keys_are_called_as_watchers_expect() -> None:
    keys = ValkeyKeys()
    assert [keys.pending(1), keys.active(1), keys.held("w"), keys.session("s")] == [
        "tasks:pending:1",
        "tasks:active:1",
        "agent:tasks:w",
        "session:context:s",
    ]
    assert [keys.heartbeat("w"), keys.status("w"), keys.stale(), keys.recovery(1)] == [
        "agent:heartbeat:w",
        "agent:status:w",
        "coordinator:stale_agents",
        "coordinator:recovery_queue:1",
    ]
    assert [keys.task_events(1), keys.agent_events(1), keys.commands(1)] == [
        "tasks:events:1",
        "agents:events:1",
        "coordinator:commands:1",
    ]


def test_a_session_with_odd_characters_goes_by_its_hash() -> None:
    """An agent chooses it: it must not become another key, nor a line of a log."""
    named = ValkeyKeys().session("x\n*:agent:status:worker-a")
    assert named.startswith("session:context:")
    assert len(named) == len("session:context:") + 64


def test_the_picture_is_shown_and_ends_by_itself(site: Site) -> None:
    async def test() -> None:
        async with over_valkey(site.url, site.namespace) as servers:
            await servers.one.show(PICTURE)

    asyncio.run(test())
    client = site.client
    assert client.zrange(site["tasks:pending:1"], 0, -1) == ["8", "7"], "the higher priority first"
    assert set(client.smembers(site["tasks:active:1"])) == {"9:a-session"}
    assert client.hgetall(site["agent:tasks:worker-a"]) == {"9": "3000"}
    assert client.hgetall(site["agent:status:worker-a"]) == {
        "status": "busy",
        "current_task": "9",
        "last_heartbeat": "4000",
    }
    assert client.hgetall(site["session:context:a-session"]) == {
        "workspace_id": "1",
        "agent_id": "worker-a",
        "task_id": "9",
        "started_at": "3000",
    }
    assert not client.exists(site["tasks:pending:2"], site["coordinator:stale_agents"])
    assert 3_500 < client.ttl(site["session:context:a-session"]) <= 3_600
    for key in client.scan_iter(f"{site.namespace}:*"):
        assert client.ttl(key) > 0, f"{key} would stay for ever"


def test_what_is_over_goes_but_for_sessions(site: Site) -> None:
    async def test() -> None:
        async with over_valkey(site.url, site.namespace) as servers:
            await servers.one.show(PICTURE)
            silent = CrewMember(1, "worker-b", "idle", 5_000, stale=True)
            await servers.one.show(Picture({1: []}, [], [silent]))

    asyncio.run(test())
    found = set(site.client.scan_iter(f"{site.namespace}:*"))
    assert found == {
        site["session:context:a-session"],
        site["agent:status:worker-b"],
        site["coordinator:stale_agents"],
        site["coordinator:shown:global"],
    }
    assert site.client.zrange(site["coordinator:stale_agents"], 0, -1, withscores=True) == [
        ("worker-b", 5_000)
    ]


@pytest.mark.parametrize("harm", ["flushed", "one key lost", "rewound", "another server"])
def test_what_was_lost_or_is_old_is_shown_anew(site: Site, harm: str) -> None:
    async def test() -> None:
        async with over_valkey(site.url, site.namespace) as servers:
            await servers.one.show(Picture({1: PICTURE.waiting[1][:1]}, [], []))
            mark = site.client.get(site["coordinator:shown:global"])
            await servers.one.show(PICTURE)
            if harm == "rewound":
                site.client.set(site["coordinator:shown:global"], mark)
                site.client.delete(site["agent:tasks:worker-a"])
            elif harm == "another server":
                await servers.other.show(Picture({}, [], []))
                site.client.delete(site["tasks:active:1"], site["tasks:pending:1"])
            else:
                every = list(site.client.scan_iter(f"{site.namespace}:*"))
                site.client.delete(*(every if harm == "flushed" else [site["coordinator:shown:global"]]))
            await servers.one.show(PICTURE)

    asyncio.run(test())
    assert site.client.zcard(site["tasks:pending:1"]) == 2
    assert site.client.hlen(site["agent:tasks:worker-a"]) == site.client.scard(site["tasks:active:1"]) == 1


def test_a_heartbeat_lives_for_a_minute(site: Site) -> None:
    async def test() -> None:
        async with over_valkey(site.url, site.namespace) as servers:
            servers.one.beat(Beat(1, "worker-a", (7, 8)))
            await eventually(
                lambda: bool(site.client.exists(site["agent:heartbeat:worker-a"])), "it was told"
            )
            servers.one.beat(Beat(1, "worker-b", ()))
            await eventually(lambda: bool(site.client.exists(site["agent:heartbeat:worker-b"])), "it as well")

    asyncio.run(test())
    told = json.loads(site.client.get(site["agent:heartbeat:worker-a"]))
    assert abs(told.pop("timestamp") / 1_000 - time.time()) < PATIENCE_S
    assert told == {"status": "busy", "task_id": 7, "workspace_id": 1}
    assert json.loads(site.client.get(site["agent:heartbeat:worker-b"]))["status"] == "idle"
    assert 50 < site.client.ttl(site["agent:heartbeat:worker-a"]) <= 60


def test_events_are_live_for_whoever_subscribes(site: Site) -> None:
    async def test() -> list[tuple[str, object]]:
        hearing = site.client.pubsub(ignore_subscribe_messages=True)
        hearing.subscribe(site["tasks:events:3"], site["agents:events:3"])
        hearing.get_message(timeout=PATIENCE_S)
        async with over_valkey(site.url, site.namespace) as servers:
            servers.one.tell([LiveEvent(3, 11, "task_completed", 7, "", "COMPLETED")])
            servers.one.tell([LiveEvent(3, 12, "worker_dead", 0, "worker-a", "")])
            heard = []
            while len(heard) < 2:
                if message := await asyncio.to_thread(hearing.get_message, timeout=PATIENCE_S):
                    heard.append((message["channel"], json.loads(message["data"])))
        hearing.close()
        return heard

    assert asyncio.run(test()) == [
        (
            site["tasks:events:3"],
            {"event": "task_completed", "task_id": 7, "status": "COMPLETED", "id": 11},
        ),
        (site["agents:events:3"], {"event": "worker_dead", "agent_id": "worker-a", "id": 12}),
    ]


def test_requests_are_counted_over_all_servers(site: Site) -> None:
    async def test() -> None:
        async with over_valkey(site.url, site.namespace) as servers:
            counted = 0

            async def counts() -> bool:
                nonlocal counted
                servers.one.rates.asked("ada")
                counted += servers.other.rates.asked("ada")
                return counted >= 3

            await eventually(counts, "the other server's requests are known")

    asyncio.run(test())
    for key in site.client.scan_iter(f"{site.namespace}:rate:*"):
        assert 0 < site.client.ttl(key) <= 5


@pytest.mark.parametrize("command", ["reassign_task", "recover_task"])
def test_another_program_may_ask_for_a_look(site: Site, command: str) -> None:
    async def test(servers: Servers) -> None:
        with servers.one.wakeups.listen(RECOVERY) as hints:
            await hints.wait(0)
            site.client.lpush(site["coordinator:recovery_queue:1"], "a task of theirs")
            told = {"command": command, "task_id": "7", "more": [1]}
            site.client.publish(site["coordinator:commands:1"], json.dumps(told))
            assert await hints.wait(PATIENCE_S)
        assert await servers.one.suspects([1]) == 1

    async def connected() -> None:
        async with over_valkey(site.url, site.namespace) as servers:
            await test(servers)

    asyncio.run(connected())


@pytest.mark.parametrize(
    "said", ["", "{", "[]", '{"command": 7}', '{"command": "wake", "topics": "ready"}', "x" * 100_000, "\0"]
)
def test_what_nobody_understands_wakes_nobody_and_hurts_nobody(site: Site, said: str) -> None:
    async def test() -> None:
        async with over_valkey(site.url, site.namespace) as servers:
            with servers.one.wakeups.listen(READY) as ready, servers.one.wakeups.listen("x") as other:
                await ready.wait(0)
                for channel in ("1", "global", "x" * 1_000):
                    site.client.publish(site[f"coordinator:commands:{channel}"], said)
                servers.other.wakeups.publish(["x"])
                assert await other.wait(PATIENCE_S)
                assert not await ready.wait(0)
            assert servers.one.failures == 0

    asyncio.run(test())


def test_two_namespaces_know_nothing_of_each_other(site: Site) -> None:
    async def test() -> None:
        one, other = over_valkey(site.url, site.namespace), over_valkey(site.url, own_namespace())
        async with one as ours, other as theirs:
            with theirs.one.wakeups.listen("x") as there, ours.other.wakeups.listen("x") as here:
                ours.one.wakeups.publish(["x"])
                assert await here.wait(PATIENCE_S)
                ours.one.suspect(1, [7])
                assert not await there.wait(0)
            assert await theirs.one.suspects([1]) == 0

    asyncio.run(test())


def test_no_secret_is_in_keys_values_or_what_is_said_of_an_address(site: Site) -> None:
    address = address_of("valkeys://ada:tiger@cache.example:7000/2?ca=/etc/ca.pem")
    assert str(address) == "valkeys://cache.example:7000/2"
    assert (address.username, address.password, address.ca) == ("ada", "tiger", "/etc/ca.pem")

    async def test() -> None:
        async with over_valkey(site.url, site.namespace) as servers:
            held = HeldTask(1, 9, "worker-a", "claude", "sk-looks like a secret", 3_000)
            await servers.one.show(Picture({}, [held], []))

    asyncio.run(test())
    keys = list(site.client.scan_iter(f"{site.namespace}:*"))
    shown = [*keys, *site.client.smembers(site["tasks:active:1"])]
    assert sum("session:context:" in one for one in shown) == 1
    assert not any("secret" in one for one in shown)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "postgresql://h/0",
        "valkey://",
        "valkey://h:tiger/0",
        "valkey://h:99999/0",
        "valkey://u:tiger@h/x",
        "valkey://u:tiger@h/0?timeout=3",
        "valkey://[::1/0",
    ],
)
def test_a_wrong_address_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(BadConfig) as refused:
        address_of(url)
    assert "tiger" not in refused.value.message + refused.value.hint
    assert "nothing was started" in refused.value.message
