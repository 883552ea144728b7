"""A real owner is asked every operation of its description: no 5xx, no undocumented status, no other shape.

`./run api` asks more of them, with schemathesis.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from described import description, misfits
from described_requests import Asked, requests
from fuzz import LEFT_OUT, SETTINGS, filled
from hypothesis import Phase, given, settings
from hypothesis.strategies import SearchStrategy
from real_crew import crew

from muster.client.http import ClientRequest, Connection
from muster.config.project import Project

EXAMPLES = 8
"""Of each operation."""
THERE = {"what": "cancel", "pool": "anthropic", "name": "ada", "number": 1, "tokenId": 1}


def test_every_answer_is_as_described(tmp_path: Path) -> None:
    found: list[str] = []
    answered: dict[str, Counter[int]] = {}
    (tmp_path / "muster.toml").write_text(SETTINGS)
    with crew(tmp_path, "owner") as (api, _):
        there, connection = THERE | filled(api), Connection(Project(tmp_path).socket)
        for path, methods in description()["paths"].items():
            if re.search(LEFT_OUT, path):
                continue
            for method, operation in methods.items():
                statuses = answered[f"{method} {path}"] = Counter()
                try:
                    _ask(connection, requests(method, path, operation, there), statuses)
                except AssertionError as error:
                    found.append(str(error))
        connection.close()
    assert not found, "\n".join(found)
    done = [name for name, statuses in answered.items() if any(status < 300 for status in statuses)]
    refused = [name for name, statuses in answered.items() if any(status >= 400 for status in statuses)]
    assert min(len(done), len(refused)) > len(answered) / 2, "otherwise little was shown"


def _ask(connection: Connection, wanted: SearchStrategy[Asked], statuses: Counter[int]) -> None:
    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        report_multiple_bugs=False,
    )
    @given(wanted)
    def ask(asked: Asked) -> None:
        status, data = connection.request(ClientRequest(*asked))
        statuses[status] += 1
        problems = wrong_with(asked, status, data)
        assert not problems, f"{asked}: {problems}"

    ask()


def wrong_with(asked: Asked, status: int, data: bytes) -> list[str]:
    if status >= 500:
        return [f"{status}: {data[:500]!r}"]
    try:
        answer = json.loads(data) if data[:1] in {b"{", b"["} else None
    except ValueError:
        return [f"{status}: it is no JSON: {data[:500]!r}"]
    return misfits(asked.method, asked.target, status, answer)


@pytest.mark.parametrize(
    ("status", "data"),
    [(500, b'{"status":500}'), (418, b"{}"), (200, b'[{"planted":1}]'), (200, b"[{")],
    ids=["an error of ours", "an undocumented status", "another shape", "no JSON"],
)
def test_what_is_not_as_described_is_told(status: int, data: bytes) -> None:
    assert wrong_with(Asked("GET", "/api/v1/agent-tasks/next", b"", {}), status, data)
