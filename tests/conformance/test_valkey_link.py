"""A Valkey that is away, hangs or refuses costs nobody more than a moment, and is left alone then."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import ssl
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from runtimes import eventually, own_namespace, servers_on, valkey_runtime
from test_runtimes import PICTURE
from valkey import Valkey

from muster.ports.runtime import READY, Beat, LiveEvent
from muster.runtimes.chance import SystemChance
from muster.runtimes.valkey.address import PROBE_S, address_of
from muster.runtimes.valkey.link import AGAIN_S_MAX, FIRST_S, ValkeyLink
from patience import PATIENCE_S
from real_servers import Running, free_port, own_folder, start_valkey


@pytest.fixture
def folder() -> Iterator[Path]:
    with own_folder() as own:
        yield own


@pytest.fixture
def running(folder: Path) -> Iterator[Running]:
    """A Valkey that a test may stop."""
    made = start_valkey(folder)
    try:
        yield made
    finally:
        made.stop(signal.SIGKILL)


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()


@pytest.mark.parametrize("scheme", ["valkeys", "rediss"])
def test_one_behind_tls_is_asked_where_its_certificate_is_trusted(
    valkey: str, certificate: tuple[Path, Path], scheme: str
) -> None:
    """The wheel's server speaks no TLS: what stands before it does."""
    cert, key = certificate
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(cert, key)
    plain = address_of(valkey)

    async def between(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs = await asyncio.open_connection(plain.host, plain.port)
        await asyncio.gather(_carry(reader, theirs[1]), _carry(theirs[0], writer))

    async def run() -> None:
        server = await asyncio.start_server(between, "localhost", 0, ssl=tls)
        port = server.sockets[0].getsockname()[1]
        for ca, found in ((f"?ca={cert}", [True]), ("", None)):
            link = ValkeyLink(address_of(f"{scheme}://localhost:{port}/0{ca}"), SystemChance())
            told = await link.send([("PING",)])
            for _ in range(100):  # a busy machine may take longer than one call is given
                if told or "timeout" not in link.problem.lower():
                    break
                await asyncio.sleep(link.wait_s)
                told = await link.send([("PING",)])
            assert told == found, link.problem
            assert found or "certificate" in link.problem.lower() or "ssl" in link.problem.lower()
            await link.aclose()
        server.close()

    asyncio.run(run())


def test_what_goes_over_the_network_is_kept_alive(valkey: str) -> None:
    async def run() -> tuple[int, int]:
        link = ValkeyLink(address_of(valkey), SystemChance())
        try:
            connection = await link.client().connection_pool.get_connection("PING")
            found = connection._writer.get_extra_info("socket")
            asked = (socket.SOL_SOCKET, socket.SO_KEEPALIVE), (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL)
            return tuple(found.getsockopt(*one) for one in asked)  # type: ignore[return-value]
        finally:
            await link.aclose()

    assert asyncio.run(run()) == (1, PROBE_S)


class StandingClock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def asked_often(link: ValkeyLink) -> list[object]:
    async def run() -> list[object]:
        try:
            return [await link.send([("PING",)]) for _ in range(100)]
        finally:
            await link.aclose()

    return asyncio.run(run())


def test_one_that_hangs_is_waited_for_once(running: Running) -> None:
    os.kill(running.pid, signal.SIGSTOP)
    link = ValkeyLink(address_of(running.url), SystemChance(), StandingClock())
    assert asked_often(link) == [None] * 100
    assert link.failures == 1 and link.away
    assert FIRST_S / 2 <= link.wait_s <= FIRST_S


def test_one_that_is_not_there_is_asked_ever_more_seldom(caplog: pytest.LogCaptureFixture) -> None:
    clock = StandingClock()
    link = ValkeyLink(address_of(f"valkey://127.0.0.1:{free_port()}"), SystemChance(), clock)
    waits = []
    with caplog.at_level(logging.INFO):
        for _ in range(12):
            assert asked_often(link) == [None] * 100
            waits.append(link.wait_s)
            clock.now_s += link.wait_s
    assert link.failures == 12
    assert waits[0] <= FIRST_S and AGAIN_S_MAX / 2 <= waits[-1] <= AGAIN_S_MAX
    assert len(caplog.records) == 1, "it is said once"


def test_it_is_used_again_once_it_goes_on(running: Running) -> None:
    clock = StandingClock()
    link = ValkeyLink(address_of(running.url), SystemChance(), clock)
    os.kill(running.pid, signal.SIGSTOP)
    assert asked_often(link)[0] is None
    os.kill(running.pid, signal.SIGCONT)
    clock.now_s += link.wait_s
    assert asked_often(link) == [[True]] * 100
    assert not link.away


def test_of_two_that_are_away_it_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    address = address_of(f"valkey://127.0.0.1:{free_port()}/0")
    link = ValkeyLink(address, SystemChance(), StandingClock())
    other = ValkeyLink(address, SystemChance(), StandingClock(), beside=link)
    with caplog.at_level(logging.INFO):
        assert asked_often(link)[0] is asked_often(other)[0] is None
        assert caplog.text.count("is away") == 1
        link.succeeded()
        assert "is there again" not in caplog.text
        other.succeeded()
    assert caplog.text.count("is there again") == 1


def test_a_wrong_password_is_named_and_not_repeated(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = start_valkey(folder, None, "--protected-mode", "no")
    try:
        with closing(Valkey.from_url(made.url)) as client:
            client.config_set("requirepass", "the right one")
        url = made.url.replace("//", "//:tiger@")
        with caplog.at_level(logging.DEBUG):
            assert asked_often(ValkeyLink(address_of(url), SystemChance(), StandingClock()))[0] is None
        right = url.replace("tiger", "the%20right%20one")
        assert asked_often(ValkeyLink(address_of(right), SystemChance(), StandingClock()))[0] == [True]
    finally:
        made.stop(signal.SIGKILL)
    assert "is away" in caplog.text
    assert "tiger" not in caplog.text and "the right one" not in caplog.text


@pytest.mark.parametrize("refuses", ["full", "replica"])
def test_one_that_takes_no_writes_still_wakes(running: Running, refuses: str) -> None:
    async def test() -> None:
        async with servers_on(running.url, own_namespace()) as servers:
            await eventually(lambda: all(one.state == "connected" for one in servers), "both are connected")
            with closing(Valkey.from_url(running.url)) as client:
                if refuses == "full":
                    client.config_set("maxmemory", 1)
                else:
                    client.replicaof("127.0.0.1", free_port())
            await servers.one.show(PICTURE)
            servers.one.beat(Beat(1, "worker-a", ()))
            with servers.other.wakeups.listen("x") as there:
                servers.one.wakeups.publish(["x"])
                assert await there.wait(PATIENCE_S)
            assert servers.one.failures == 0

    asyncio.run(test())


def test_whoever_tells_one_that_hangs_goes_on_and_wakes_those_here(running: Running) -> None:
    os.kill(running.pid, signal.SIGSTOP)

    async def test() -> None:
        async with servers_on(running.url, own_namespace()) as servers:
            with servers.one.wakeups.listen(READY) as here:
                for number in range(50_000):
                    servers.one.wakeups.publish([f"topic {number}", READY])
                    servers.one.rates.asked(f"caller {number}")
                    servers.one.beat(Beat(1, f"worker-{number}", ()))
                    servers.one.tell([LiveEvent(1, number, "task_completed", 7, "", "COMPLETED")])
                assert await here.wait(PATIENCE_S)
            assert servers.one.state == servers.other.state == "away"

    asyncio.run(test())


def test_what_was_published_while_it_was_away_wakes_once_it_is_there(folder: Path) -> None:
    port = free_port()

    async def test() -> None:
        async with servers_on(f"valkey://127.0.0.1:{port}", own_namespace()) as servers:
            await eventually(lambda: servers.one.failures > 0, "nobody is there")
            with servers.other.wakeups.listen("x") as there:
                servers.one.wakeups.publish(["x"])
                started.append(await asyncio.to_thread(start_valkey, folder, port))
                assert await there.wait(PATIENCE_S)

    started: list[Running] = []
    try:
        asyncio.run(test())
    finally:
        for one in started:
            one.stop(signal.SIGKILL)


def test_a_server_may_end_at_any_moment(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    """The client swallows a cancellation at times: nobody would ever be done with waiting for the end."""

    async def test() -> None:
        for steps in range(150):
            runtime = valkey_runtime(running.url, own_namespace())
            runtime.start()
            for step in range(steps):
                runtime.wakeups.publish([f"topic {step}"])
                await asyncio.sleep(0)
            shown = asyncio.create_task(runtime.show(PICTURE))
            await asyncio.sleep(0)
            shown.cancel()
            await asyncio.wait_for(runtime.aclose(), PATIENCE_S)
            await asyncio.wait([shown], timeout=PATIENCE_S)
            assert shown.cancelled()

    asyncio.run(test())
    assert not caplog.records, "it ended; Valkey was not away"


def test_a_server_that_ends_leaves_nothing_running(running: Running) -> None:
    async def test() -> None:
        runtime = valkey_runtime(running.url, own_namespace())
        runtime.start()
        await eventually(lambda: runtime.state == "connected", "it is connected")
        await runtime.aclose()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        with closing(Valkey.from_url(running.url)) as client:
            await eventually(lambda: len(client.client_list()) == 1, "its connections are closed")

    asyncio.run(test())
