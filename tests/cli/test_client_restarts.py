"""Clients of a server that is killed and begun anew, or whose answer is lost on the way."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from test_remote_worker import Served, served
from test_run import folder

import muster
from far_servers import SECRET, FarOwner, far_owner
from muster.model.errors import OwnerUnavailable
from patience import PATIENCE_S

__all__ = ["folder", "served"]


@contextmanager
def losing_answers(owner: FarOwner, times: int) -> Iterator[str]:
    """The URL of a proxy before it that cuts the connection instead of handing on its first answers to a POST."""
    assert owner.network is not None
    behind = owner.network.getsockname()

    left = [None] * times

    def hand_on(client: socket.socket) -> None:
        with client, socket.create_connection(behind) as server:
            while asked := client.recv(1 << 16):
                server.sendall(asked)
                answer = server.recv(1 << 16)
                if asked.startswith(b"POST") and left:
                    left.pop()
                    break
                client.sendall(answer)

    def serve(front: socket.socket) -> None:
        with suppress(OSError):  # it was closed
            while True:
                threading.Thread(target=hand_on, args=front.accept()[:1], daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as front:
        thread = threading.Thread(target=serve, args=(front,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{front.getsockname()[1]}"
        front.shutdown(socket.SHUT_RDWR)
    thread.join(PATIENCE_S)


@pytest.fixture
def far(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FarOwner]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    with far_owner(tmp_path / "elsewhere") as made:
        yield made


def kill_owner(served: Served) -> None:
    os.kill(served.api.get("/api/v1/owner")["pid"], signal.SIGKILL)


def test_a_client_goes_on_while_its_server_is_killed_and_comes_back(served: Served) -> None:
    with muster.Client(server=served.url, token=served.owner) as client:
        first = client.add("first", plan="p", agent="nobody")
        kill_owner(served)
        second = client.add("second", plan="p", agent="nobody", after=first)
        kill_owner(served)
        assert [task.title for task in client.tasks(plan="p")] == ["first", "second"]

    async def add() -> int:
        async with muster.AsyncClient(server=served.url, token=served.owner) as other:
            await other.status()
            kill_owner(served)
            return (await other.add("third", plan="p", agent="nobody")).id

    third = asyncio.run(add())
    tasks = served.told("task", "list", "--plan", "p")
    assert [task["id"] for task in tasks] == [first.id, second.id, third]


def test_what_is_added_again_because_its_answer_was_lost_is_there_once(far: FarOwner) -> None:
    with losing_answers(far, 4) as url:
        client = muster.Client(server=url, token=SECRET)
        client.status()
        added = client.add("once", plan="p")
        named = client.add("named", plan="p", key="n")
        other = asyncio.run(muster.AsyncClient(server=url, token=SECRET).add("once", plan="p"))
    made = {task.id for task in far.tasks().values() if task.plan == "p"}
    assert made == {added.id, named.id, other.id} and len(made) == 3


def test_a_wrong_address_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(OwnerUnavailable, match="no server answers"):
        muster.Client(server=url, token="mst_any").add("nowhere")
