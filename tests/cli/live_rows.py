"""Tasks as the API lists them, for the live watch without an owner."""

from __future__ import annotations

from muster.cli.live.news import News


def task(number, status="PENDING", **more):
    row = {"id": number, "plan": "p", "key": f"t{number}", "title": f"Task {number}", "status": status}
    row |= {"state": {"PENDING": "ready", "ABORTED": "delayed"}.get(status, status.lower())}
    row |= {"epoch": 0, "seq": 1, "why": f"reason {number}"}
    row |= {"agent": None, "wantedAgent": None, "percent": 0, "step": "", "startedAtMs": None}
    row |= {"needsPerson": False, "question": "", "wish": "", "fix": "", "remark": "", "error": ""}
    row |= {"atWork": status == "RUNNING"}
    row |= {"actions": ["resume"] if status == "PAUSED" else ["pause", "cancel", "retry"]}
    return {**row, **more}


def news(tasks=None, *, log=(), log_of=None, told=""):
    return News(tasks=tasks, status=None, log=log, log_of=log_of, link="live", told=told)
