"""What is asked of an owner, and whoever does not wait for the answer."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable
from typing import Any

import pytest

import muster
from muster.model.errors import BadInput, WaitTimeout
from patience import PATIENCE_S

HALF = "\ud800"
"""Half of a surrogate pair: no text in UTF-8 holds it."""


def test_a_cancelled_wait_is_no_end_of_the_owner(app: muster.App, caplog: pytest.LogCaptureFixture) -> None:
    @app.task
    async def stay(ctx: muster.AsyncTaskContext) -> None:
        while True:
            await ctx.progress(1)
            await asyncio.sleep(0.01)

    async def wait() -> None:
        handle = await stay.enqueue_async()
        waiting = asyncio.create_task(handle.result())
        async for event in handle.events():
            if event.event == "claimed":
                break
        for _ in range(3):
            await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await handle.cancel()
        with pytest.raises(muster.TaskCancelled):
            await handle.result(PATIENCE_S)

    with caplog.at_level(logging.ERROR), app.running():
        asyncio.run(wait())
    gc.collect()
    assert "never retrieved" not in caplog.text


ASKED: dict[str, Callable[[muster.Client], Any]] = {
    "title": lambda client: client.add(HALF),
    "prompt": lambda client: client.add("a", HALF),
    "metadata": lambda client: client.add("a", metadata={"k": HALF}),
    "plan": lambda client: client.add("a", plan=HALF),
    "reference": lambda client: client.handle(HALF),
    "filter": lambda client: client.tasks(tags=[HALF]),
    "path": lambda client: client.request("GET", f"/api/v1/plans/{HALF}"),
    "method": lambda client: client.request(f"G{HALF}", "/api/v1/plans"),
    "body": lambda client: client.request("POST", "/api/v1/plans", {"plan": HALF}),
}


@pytest.mark.parametrize("embedded", [True, False])
@pytest.mark.parametrize("asked", ASKED)
def test_half_a_surrogate_pair_is_refused(app: muster.App, asked: str, embedded: bool) -> None:
    client = muster.Client(app.link.project.root)

    def refuse() -> None:
        with pytest.raises(BadInput, match="surrogates not allowed; nothing was"):
            ASKED[asked](client)

    if embedded:
        with app.owning():
            refuse()
    else:
        refuse()
    assert client.tasks() == []


def test_a_tool_refuses_it_as_well(app: muster.App) -> None:
    tool = muster.TaskTool(muster.TaskQueue(project=app.link.project.root))
    with pytest.raises(BadInput, match="surrogates not allowed; nothing was"):
        asyncio.run(tool.run("p", HALF, persist=True))


def test_that_a_paused_plan_goes_on_is_said_once(app: muster.App) -> None:
    client = muster.Client(app.link.project.root)
    handle = client.add("a", plan="odd")
    client.request("POST", "/api/v1/plans/odd/pause", {"actor": "user:ada"})
    with pytest.raises(WaitTimeout) as late:
        handle.result(0)
    assert late.value.message.endswith("plan odd is paused: `muster plan resume odd` goes on")
