"""The history of a crew of servers: one run, from the first one that came to the end of the last."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

from patience import until
from several_servers import QUICK, SharedServer, several


def runs(server: SharedServer) -> list[dict[str, Any]]:
    """The newest first."""
    found: list[dict[str, Any]] = server.local("GET", "/api/v1/coordinator/runs")
    return found


def test_a_run_lasts_from_the_first_server_to_the_last(tmp_path: Path, postgres_store: str) -> None:
    with several(tmp_path, postgres_store, 2, QUICK) as servers:
        leader = servers.leader
        assert leader is not None
        (other,) = [one for one in servers.every if one is not leader]
        until(lambda: runs(other), "a run has begun")
        (run,) = runs(other)
        assert (run["startedBy"], run["how"]) == (leader.named, "")
        leader.end()
        until(lambda: other.leads, "the other one leads")
        assert runs(other) == [run], "it goes on"
        other.end()
        other.start()
        until(lambda: len(runs(other)) == 2, "another one has begun")
        newest, first = runs(other)
        assert (first["id"], first["how"]) == (run["id"], "stopped")
        assert first["endedAtMs"] >= first["startedAtMs"] and newest["how"] == ""
        other.end(signal.SIGKILL)
        other.start()
        until(lambda: len(runs(other)) == 3, "and another one")
        assert [one["how"] for one in runs(other)] == ["", "died", "stopped"]
