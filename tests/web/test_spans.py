"""Spans of OpenTelemetry: who is told of what, and that nobody else loads any of it."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from web_site import Site

from muster.hosts.trace import trace_with
from muster.outbound.otel import Moves, OtelTracer
from muster_command import run_muster
from patience import PATIENCE_S

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def sent() -> Iterator[Any]:
    """What was sent, once the tracer is closed."""
    exporter = InMemorySpanExporter()
    tracer = OtelTracer("test", exporter)
    trace_with(tracer)

    def spans() -> dict[str, Any]:
        tracer._provider.force_flush()
        return {span.name: span for span in exporter.get_finished_spans()}

    yield spans, tracer
    trace_with(None)
    tracer.close()


def test_requests_and_moves_are_told(site: Site, sent: Any) -> None:
    spans, tracer = sent
    added = site.post("/api/v1/agent-tasks", {"title": "t", "actor": "ada"})
    path = f"/api/v1/agent-tasks/{added['taskIds'][0]}"
    assert site.send("GET", path, headers={"traceparent": CALLER, "X-Request-Id": "r-1"})[0] == 200
    found = spans()
    post, get = found["POST /api/v1/agent-tasks"], found["GET /api/v1/agent-tasks/{task_id:id}"]
    assert post.parent is None and post.attributes["http.response.status_code"] == 201
    assert f"{get.context.trace_id:032x}" == CALLER.split("-")[1]
    assert get.attributes["muster.request.id"] == "r-1"
    assert get.attributes["http.route"] == "/api/v1/agent-tasks/{task_id:id}"

    asyncio.run_coroutine_threadsafe(Moves(site.backend.reads, tracer).look(), site._loop).result(PATIENCE_S)
    with tracer.span("attempt", task_id=added["taskIds"][0], muster__attempt=1):
        pass
    found = spans()
    move, attempt = found["task PENDING"], found["attempt"]
    assert (move.attributes["muster.event"], move.attributes["muster.actor"]) == ("enqueued", "ada")
    assert move.start_time == move.end_time
    assert move.context.trace_id == attempt.context.trace_id, "all of one task is one trace"
    assert attempt.attributes["muster.attempt"] == 1


def test_a_crew_tells_of_its_tasks(tmp_path: Path) -> None:
    (tmp_path / "muster.toml").write_text('agent = "shell"\n[trace]\nspans = true\n[workers]\ncount = 1\n')
    (tmp_path / "plan.md").write_text("# Plan\n\n- [ ] One {#a}\n  true\n")
    env = {**os.environ, "OTEL_TRACES_EXPORTER": "console"}
    run = run_muster(tmp_path, "run", "plan.md", env=env)
    assert run.returncode == 0, run.stdout + run.stderr
    lines = (tmp_path / ".muster" / "muster.log").read_text().splitlines()
    spans = [json.loads(line) for line in lines if line.startswith('{"name"')]
    of_task = [span for span in spans if span["name"] == "attempt" or span["name"].startswith("task ")]
    assert {span["name"] for span in of_task} >= {
        "attempt",
        "task ASSIGNED",
        "task RUNNING",
        "task COMPLETED",
    }
    assert len({span["context"]["trace_id"] for span in of_task}) == 1
    assert any(span["name"] == "POST /worker/v1/claim" for span in spans)


def test_without_the_setting_nothing_of_it_is_loaded(tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
from muster.app.forked import _load_anew
from muster.app.parts import traced
from muster.app.settings import load_config
_load_anew(Path(sys.argv[1]))
with traced("owner", load_config(Path(sys.argv[1]))):
    print(*(name for name in sys.modules if name.startswith("opentelemetry")))
"""
    run = subprocess.run(
        [sys.executable, "-c", code, tmp_path], stdout=subprocess.PIPE, text=True, check=True
    )
    assert run.stdout.strip() == ""


def test_what_is_missing_is_said_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "muster.toml").write_text('agent = "shell"\n')
    env = {**os.environ, "MUSTER_TRACE_SPANS": "true", "OTEL_TRACES_EXPORTER": "zipkin"}
    up = run_muster(tmp_path, "up", env=env)
    assert up.returncode != 0
    assert "OTEL_TRACES_EXPORTER is 'zipkin'" in up.stderr and "otlp or console" in up.stderr
