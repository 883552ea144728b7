"""`/metrics`, `/health/coordinator`, and the alert rules and pages that name what they tell."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from over_network import Line, People, listening
from prometheus_client.parser import text_string_to_metric_families
from web_site import Site

from muster.client.http import ClientRequest, Connection
from muster.engine.cycles import Cycles
from muster.model.access import Right, Role
from muster.model.errors import StoreHalted
from muster.web.coordinator import LATE_S
from muster.web.event_counts import PAGE_EVENTS
from muster.web.gate import Exposure

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy" / "prometheus" / "muster.rules.yml"
SOURCE_THRESHOLDS = {
    "MusterSlowCycle": 'le="5.0"',
    "MusterStaleAgents": "> 5",
    "MusterManyPending": "> 50",
    "MusterManyFailed": "> 10",
    "MusterRetriesExhausted": "> 0",
    "MusterManyStarts": "> 100",
    "MusterStoreAway": "> 0",
}

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def parsed(text: str) -> Samples:
    """As Prometheus' own parser reads it."""
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation and family.type != "unknown", family.name
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in found, key
            found[key] = sample.value
    return found


def scraped(site: Site) -> Samples:
    connection = Connection(site.socket)
    try:
        status, text = connection.request(ClientRequest("GET", "/metrics"))
    finally:
        connection.close()
    assert status == 200
    return parsed(text.decode())


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, tuple(sorted(labels.items()))]


def test_tasks_workers_and_failures_are_counted(site: Site) -> None:
    before = scraped(site)
    assert value(before, "muster_tasks_retries_exhausted_total") == 0
    site.register(unfit={"codex": "not there"}, agents=["claude", "codex"])
    site.enqueue("a", "b", "c")
    jobs = {job["key"]: job for job in site.started()}
    site.post("/worker/v1/fail", site.of(jobs["a"]) | {"kind": "invalid", "message": "no"})
    for _ in range(4):
        site.post("/worker/v1/fail", site.of(jobs["b"]) | {"kind": "crash", "message": "no"})
        task = site.get(f"/api/v1/agent-tasks/{jobs['b']['taskId']}")["task"]
        if task["status"] == "FAILED":
            break
        site.post(f"/api/v1/agent-tasks/{task['id']}/retry", {"actor": "ada"})
        jobs["b"] = site.started(f"again {task['epoch']}")[0]
    found = scraped(site)
    assert value(found, "muster_tasks", status="RUNNING") == 1
    assert value(found, "muster_tasks", status="FAILED") == 2
    assert value(found, "muster_tasks", status="PENDING") == 0
    assert value(found, "muster_workers", status="busy") == 1
    assert (value(found, "muster_agents_healthy"), value(found, "muster_agents_stale")) == (1, 1)
    assert (value(found, "muster_attempts_open"), value(found, "muster_leases_expired")) == (1, 0)
    assert value(found, "muster_crew", status="RUNNING") == 1
    assert value(found, "muster_tasks_failed_total", kind="invalid") == 1
    assert value(found, "muster_tasks_failed_total", kind="crash") == 1
    assert value(found, "muster_tasks_retries_exhausted_total") == 1
    assert value(found, "muster_attempts_started_total") == value(
        found, "muster_task_events_total", event="started"
    )
    assert value(found, "process_resident_memory_bytes") > 1_000_000
    assert scraped(site)["muster_attempts_started_total", ()] == found["muster_attempts_started_total", ()]


def test_only_what_came_after_the_owner_began_is_counted(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("muster.web.event_counts.PAGE_EVENTS", 2)
    assert PAGE_EVENTS > 2
    site.enqueue("a")
    site.owner.first_event_id = site.get("/api/v1/status")["status"]["lastEventId"]
    site.enqueue("b", "c", "d", "e", "f", plan="other")
    assert value(scraped(site), "muster_task_events_total", event="enqueued") == 5


@pytest.mark.promise("S13")
def test_a_token_reads_its_own_workspace_and_nothing_of_the_process(site: Site) -> None:
    people = People(site)
    people.token(Role.OWNER, member="root")
    people.post("/api/v1/workspaces", name="acme")
    theirs = people.token(Role.OWNER, "acme", scopes=[Right.READ])
    unable = people.token(Role.OWNER, "acme", scopes=[Right.WORK])
    site.enqueue("a", "b")

    def read(port: int, token: str) -> tuple[int, Any]:
        with Line(port) as line:
            status, _, text = line.ask("GET", "/metrics", Authorization=f"Bearer {token}")
            return status, text

    with listening(site, Exposure(rate=0)) as port:
        assert read(port, "mst_of_nobody")[0] == 401
        assert read(port, unable)[0] == 403
        status, text = read(port, theirs)
    assert status == 200
    found = parsed(text.decode())
    assert value(found, "muster_tasks", status="PENDING") == 0
    assert not [name for name, _ in found if name.startswith(("process_", "muster_coordinator_"))]


def test_the_coordinators_health(site: Site) -> None:
    assert site.get("/health/coordinator") == {
        "status": "healthy",
        "problem": "",
        "coordinator": {"active": True, "lastCycle": None, "cycleCount": 0},
        "database": "connected",
        "valkey": "unused",
        "gateway": "no worker",
    }
    site.register()
    cycles = site.owner.cycles["reaper"] = Cycles()
    cycles.add(6.0, site.owner.started_at_ms)
    told = site.get("/health/coordinator")
    assert told["coordinator"]["cycleCount"] == 1 and told["coordinator"]["lastCycle"].endswith("+00:00")
    assert told["gateway"] == "reachable"
    found = scraped(site)
    name, of = "muster_coordinator_cycle_duration_seconds", {"service": "reaper"}
    assert value(found, f"{name}_bucket", **of, le="5.0") == 0
    assert value(found, f"{name}_count", **of) == value(found, f"{name}_bucket", **of, le="+Inf") == 1
    assert (value(found, f"{name}_sum", **of), value(found, "muster_coordinator_healthy")) == (6, 1)
    cycles.add(0.0, site.owner.started_at_ms - int(LATE_S * 1000) - 1000)
    assert unhealthy(site)["problem"].startswith("it has not looked at workers and leases for 3")
    assert value(scraped(site), "muster_coordinator_healthy") == 0


def test_it_is_not_healthy_while_nothing_is_written(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site.owner, "halted", lambda: StoreHalted("a sync has failed", "muster doctor"))
    told = unhealthy(site)
    assert (told["problem"], told["database"]) == ("a sync has failed", "store_halted")
    assert value(scraped(site), "muster_store_halted") == 1


def unhealthy(site: Site) -> Any:
    status, told = site.send("GET", "/health/coordinator")
    assert (status, told["status"], told["coordinator"]["active"]) == (503, "unhealthy", False)
    assert site.get("/api/v1/coordinator/status")["problem"] == told["problem"]
    return told


def test_rules_and_page_name_what_is_exported(site: Site) -> None:
    site.owner.cycles["reaper"] = Cycles()
    site.owner.cycles["reaper"].add(0.1, site.owner.started_at_ms)
    connection = Connection(site.socket)
    text = connection.request(ClientRequest("GET", "/metrics"))[1].decode()
    connection.close()
    families = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    exported = set(families) | {
        f"{name}{suffix}"
        for name, kind in families.items()
        if kind == "histogram"
        for suffix in ("_bucket", "_sum", "_count")
    }
    rules = yaml.safe_load(RULES.read_text())["groups"][0]["rules"]
    for rule in rules:
        named = set(re.findall(r"\b(?:muster|process)_\w+", rule["expr"]))
        assert named <= exported and (named or rule["expr"].startswith("up")), rule["alert"]
        assert rule["annotations"].keys() == {"summary", "action"}
    by_name = {rule["alert"]: rule["expr"] for rule in rules}
    assert {name: part for name, part in SOURCE_THRESHOLDS.items() if part not in by_name[name]} == {}
    page = (ROOT / "docs" / "metrics.md").read_text()
    on_page = {name for name in re.findall(r"\b(?:muster|process)_[a-z_]+", page) if name in exported}
    assert families.keys() - on_page == set(), "docs/metrics.md has a row for each"
