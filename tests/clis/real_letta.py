"""Letta Code after a kill in the middle of its writing."""

from __future__ import annotations

import os

import pytest
from model_stub import ModelStub

from bench import Bench
from muster.ports.agent import Completed

CUT = ("conversation.json", "messages.jsonl", "manifest.json", "system-prompt.json")


@pytest.fixture
def cli() -> str:
    return "letta"


@pytest.mark.parametrize("size", [0, 20])
@pytest.mark.parametrize("name", CUT)
def test_a_file_that_was_cut_off_stops_no_task(bench: Bench, stub: ModelStub, name: str, size: int) -> None:
    session = bench.run("plain").session
    conversation, _, own = session.partition("@")
    folders = bench.root.glob(f"home/.letta/lc-local-backend/muster/{own}/conversations/*/conversation.json")
    [folder] = (path.parent for path in folders if f'"{conversation}"' in path.read_text())
    os.truncate(folder / name, size)
    other = bench.run("plain")
    assert isinstance(other.outcome, Completed), (other.outcome, "a task that has nothing to do with it")
    again = bench.run("plain", session_key=session)
    assert isinstance(again.outcome, Completed), again.outcome
    assert again.session != session
    assert "stub: plain" in stub.model_requests("plain")[-1].text
