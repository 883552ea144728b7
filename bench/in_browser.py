"""The pages of a real owner in a real browser, by way of `muster ui`: how soon they are there, how soon what
happens is on them, and what they cost the owner."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import inside
from outside import START_S, Hand, Site, cpu_s, peak_mb, site, until
from setting import Setting
from table import Row, most, percentile, told

from muster.model import commands as c

PAINT_MS, PATCH_MS, OWNER_MB = 100.0, 250.0, 70.0
LOG_BYTES = 60_000
"""Of one chunk, as a worker sends it."""
CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "chromium-headless-shell")
"""What people have comes first."""
NEEDS = "pip install playwright, and a Chromium on PATH"

_WATCH = """(text) => {
  window.seenAt = 0;
  new MutationObserver(() => {
    if (!window.seenAt && document.querySelector("h1").innerText !== text)
      requestAnimationFrame(() => (window.seenAt = Date.now()));
  }).observe(document.body, {subtree: true, childList: true, characterData: true, attributes: true});
}"""
_IS_LIVE = "document.getElementById('link').textContent === 'live'"
_PAINTED = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"


def rows(setting: Setting) -> Iterator[Row]:
    browser = next(filter(None, map(shutil.which, CHROMIUM)), None)
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        browser = None
    if browser is None:
        yield Row("pages in a browser", not_run=NEEDS)
        return
    tasks, lines = setting.size((5000, 100_000), (200, 2000))
    with setting.place() as folder, site(folder / "p") as project:
        owner = project.owner()
        number = _seeded(project, tasks, lines)
        paused = project.task("t0")["id"]
        owner.terminate()  # what it took to add and list all that is measured elsewhere
        owner.wait()
        owner = project.owner()
        before_mb = peak_mb(owner.pid)
        with sync_playwright() as playwright, _door(project) as link:
            options = ["--no-sandbox"] if os.geteuid() == 0 else []
            chromium = playwright.chromium.launch(executable_path=browser, args=options)
            page = chromium.new_page()
            page.goto(link)
            page.wait_for_url("**/")
            times = [_painted(page, "/tasks/0") for _ in range(setting.size(15, 2))]
            yield told("first paint: a page of one sentence", times, "ms", "what Chromium takes for any page")
            paths = {
                f"overview, {tasks:,} tasks": "/",
                f"table of {tasks:,} tasks": "/tasks",
                f"plan of {tasks:,} tasks, a third done": "/plans/p",
                "the same, with its graph": "/plans/p?graph=yes",
                f"task, transcript of {lines:,} lines": f"/tasks/{number}",
                "transcript's beginning": f"/tasks/{number}/transcript",
            }
            for what, path in paths.items():
                times = [_painted(page, path) for _ in range(setting.size(15, 2))]
                bound = f"Chromium, cold cache on the first; owner's memory then {peak_mb(owner.pid):.1f} MB"
                if path.endswith("graph=yes"):  # who asks for it knows that it is large
                    yield told(f"first paint: {what}", times, "ms", bound)
                else:
                    yield most(f"first paint: {what}", times, "ms", PAINT_MS, bound)
                cost_ms = _cost_ms(page, path, owner.pid, setting.size(40, 2))
                yield told("  CPU of the owner for it", [cost_ms], "ms", "asked for without a browser")
            patches = _patches(project, page, paused, setting.size(15, 3))
            yield told("patch on screen after the event: p50", [percentile(patches, 0.5)], "ms")
            yield most("  slowest", [max(patches)], "ms", PATCH_MS, "looks at most four times a second")
            chromium.close()
        bound = f"{before_mb:.1f} MB when started, with {tasks:,} tasks and the transcript in its store"
        yield most("owner's memory, with pages", [peak_mb(owner.pid)], "MB", OWNER_MB, bound)


def _seeded(project: Site, tasks: int, lines: int) -> int:
    """The task with the transcript.  By a process that ends: what is below a worker may open no pages."""
    child = multiprocessing.get_context("fork").Process(target=_seed, args=(project, tasks, lines))
    child.start()
    child.join()
    number: int = project.task("talks")["id"]
    return number


def _seed(project: Site, tasks: int, lines: int) -> None:
    """A plan of which half waits for others and a third is done, and a running task of another one with its
    output."""
    left = tasks - tasks // 3
    hand = Hand(project.project.socket)
    project.add(
        "p",
        [
            {
                "title": f"task {i}",
                "key": f"t{i}",
                "epic": f"Epic {i // 100}",
                "agent": "nobody" if i < left else inside.AGENT,
                "dependsOn": [f"t{i - 7}"] if 7 <= i < left and i % 4 else [],
            }
            for i in range(tasks)
        ],
    )
    assert hand.drain(as_agents=True) == tasks - left
    project.add("q", [{"title": "talks", "key": "talks", "agent": inside.AGENT}])
    job = hand.claim()
    assert job is not None
    hand.crew.report(inside.start(job))
    data = b"".join(b"line %d: what an agent says while it works, at some length\n" % n for n in range(lines))
    for offset in range(0, len(data), LOG_BYTES):
        part = data[offset : offset + LOG_BYTES]
        told_of = {"task_id": job.task_id, "epoch": job.epoch, "stream": "stdout", "offset": offset}
        hand.crew.report(c.AppendLog(data=part, **told_of))


@contextmanager
def _door(project: Site) -> Iterator[str]:
    """The link that `muster ui` prints."""
    command = [sys.executable, "-m", "muster.cli.main", "ui", "--no-open", "--json"]
    process = subprocess.Popen(command, cwd=project.root, env=project.env, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())["link"]
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def _painted(page: Any, path: str) -> float:
    """From the navigation's beginning, of one who has looked at the page before until it was live."""
    page.goto(path if page.url == "about:blank" else _beside(page.url, path))
    found: Callable[[], Any] = lambda: page.evaluate(_PAINTED)  # noqa: E731
    painted_ms = float(until(found, START_S, f"{path} is painted"))
    if page.evaluate("'stream' in document.body.dataset"):
        until(lambda: page.evaluate(_IS_LIVE), START_S, f"{path} is live")
    return painted_ms


def _cost_ms(page: Any, path: str, owner: int, times: int) -> float:
    """Of one answer."""
    before_s = cpu_s(owner)
    for _ in range(times):
        page.request.get(_beside(page.url, path))
    return (cpu_s(owner) - before_s) / times * 1000


def _beside(url: str, path: str) -> str:
    return "/".join(url.split("/")[:3]) + path


def _patches(project: Site, page: Any, number: int, rounds: int) -> list[float]:
    """From before the command is sent until the new state of that task is on the screen."""
    page.goto(_beside(page.url, f"/tasks/{number}"))
    until(lambda: page.evaluate(_IS_LIVE), START_S, "the page is live")
    found = []
    for at in range(rounds):
        action = "resume" if at % 2 else "pause"
        page.evaluate(_WATCH, page.locator("h1").inner_text())
        begun_ms = time.time() * 1000
        with project.api() as api:
            api.post(f"/api/v1/agent-tasks/{number}/{action}", {"actor": "bench"})
        found.append(until(lambda: page.evaluate("window.seenAt"), START_S, "the patch") - begun_ms)
        page.wait_for_timeout(400)  # so that no look that is due anyway makes it quicker or slower
    return found
