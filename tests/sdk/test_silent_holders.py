"""Whoever waits for a result with a time is told in time, whatever has become of who holds the store."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import muster
from muster.client.http import REPLY_S, ClientRequest
from muster.hosts.file_lock import Lock
from muster.model.errors import OwnerUnavailable
from muster.sdk.links import EMBEDDED
from patience import until

HOLDER = """
import sys, muster
app = muster.App("reports", project=sys.argv[1])
with app.owning():
    print("up", flush=True)
    sys.stdin.read()
"""
MODES = pytest.mark.parametrize("asynchronous", [False, True], ids=["thread", "async"])


def later(app: muster.App, *, asynchronous: bool) -> muster.Handle[None] | muster.AsyncHandle[None]:
    @app.task(name="later", delay="1h")
    def task() -> None: ...

    return asyncio.run(task.enqueue_async()) if asynchronous else task.enqueue()


def refused(
    handle: muster.Handle[None] | muster.AsyncHandle[None], timeout: float | None = 0.1
) -> OwnerUnavailable:
    begun_s = time.monotonic()
    with pytest.raises(OwnerUnavailable) as told:
        if isinstance(handle, muster.AsyncHandle):
            asyncio.run(handle.result(timeout))
        else:
            handle.result(timeout)
    assert time.monotonic() - begun_s < REPLY_S, "one answer alone may take so long otherwise"
    return told.value


def _stands_still(pid: int) -> bool:
    stats = [task.read_text() for task in Path(f"/proc/{pid}/task").glob("*/stat")]
    return all(stat.rpartition(")")[2].split()[0] == "T" for stat in stats)


@contextmanager
def stopped_holder(folder: Path) -> Iterator[None]:
    argv = [sys.executable, "-c", HOLDER, str(folder)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"up\n"
        os.kill(holder.pid, signal.SIGSTOP)
        until(lambda: _stands_still(holder.pid), "each of its threads has stopped")
        try:
            yield
        finally:
            holder.kill()


@MODES
def test_one_that_stands_still(app: muster.App, tmp_path: Path, asynchronous: bool) -> None:
    handle = later(app, asynchronous=asynchronous)
    with stopped_holder(tmp_path):
        refused(handle)


@MODES
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_what_it_may_still_do_is_not_offered_to_be_asked_again(
    app: muster.App, tmp_path: Path, asynchronous: bool, method: str
) -> None:
    asked = ClientRequest(method, "/api/v1/plans", reply_s=0.5, repeatable=True)
    link = app.link
    with stopped_holder(tmp_path), pytest.raises(OwnerUnavailable) as told:
        if asynchronous:
            asyncio.run(link.send_async(asked))
        else:
            link.send(asked)
    in_doubt = "nobody knows whether it does what it was asked" in told.value.message
    assert in_doubt is (method == "POST")
    assert ("before you ask again" in (told.value.hint or "")) is in_doubt


@MODES
def test_one_that_listens_nowhere(app: muster.App, tmp_path: Path, asynchronous: bool) -> None:
    handle = later(app, asynchronous=asynchronous)
    lock = Lock.take(tmp_path / ".muster" / "owner.lock")
    try:
        assert f"process {os.getpid()} holds the store" in refused(handle).message
    finally:
        lock.release()


@MODES
def test_one_in_this_program_that_stands_still(app: muster.App, asynchronous: bool) -> None:
    with app.owning():
        handle = later(app, asynchronous=asynchronous)
        owner = EMBEDDED[app.link.project.folder]
        owner._loop.call_soon_threadsafe(time.sleep, 20)
        assert "has not answered within" in refused(handle).message


@MODES
def test_one_in_this_program_that_has_ended(app: muster.App, asynchronous: bool) -> None:
    handle = later(app, asynchronous=asynchronous)
    with app.running():
        owner = EMBEDDED[app.link.project.folder]
        owner._loop.call_soon_threadsafe(owner._web.shut_down)
        assert "has ended" in refused(handle, timeout=None).message


def test_what_is_asked_after_the_last_answer_is_refused(app: muster.App) -> None:
    """Its loop has ended, and is not closed yet."""
    asked, told = ClientRequest("GET", "/api/v1/status"), []
    with app.owning():
        owner = EMBEDDED[app.link.project.folder]
        close = owner._loop.close

        def ask_first() -> None:
            with pytest.raises(OwnerUnavailable) as refusal:
                owner.send(asked)
            told.append(refusal.value.message)
            close()

        owner._loop.close = ask_first  # type: ignore[method-assign]
    assert told == ["the owner in this process has ended"]
