"""The error index of the documentation knows every error that there is, and tells the truth about it."""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
import re
from pathlib import Path

import muster
from muster.agents.command import EXIT_CODES
from muster.cli import main as main_module
from muster.model.errors import MusterError
from muster.model.retry import SPENDS, Spend
from muster.model.states import ErrorKind, PauseReason
from muster.worker import holder, supervisor

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "errors.md").read_text("utf-8")
COSTS = {Spend.LOSS: "a loss", Spend.RETRY: "a retry", Spend.NOTHING: "nothing"}


def classes(root: type[MusterError] = MusterError) -> list[type[MusterError]]:
    """Wherever in the package they are."""
    if root is MusterError:
        for module in pkgutil.walk_packages(muster.__path__, "muster."):
            with contextlib.suppress(ImportError):  # what needs an extra has no errors of its own
                importlib.import_module(module.name)
    ours = [child for child in root.__subclasses__() if child.__module__.startswith("muster.")]
    return [root, *(found for child in ours for found in classes(child))]


def rows(heading: str) -> list[list[str]]:
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_every_class_has_its_row_and_its_section() -> None:
    expected = {
        (f"[`{cls.code}`](#{cls.code})", cls.__name__, str(cls.exit_code), str(cls.http_status))
        for cls in classes()
    }
    assert {tuple(row) for row in rows("Codes")} == expected
    sections = dict(re.findall(r"^### `(\w+)`\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL))
    assert sections.keys() == {cls.code for cls in classes()}
    for code, text in sections.items():
        assert re.findall(r"^- \*\*(\w+):\*\* \S", text, re.MULTILINE) == ["Cause", "Kept", "Do"], code


def test_every_exit_code_of_the_help_is_there() -> None:
    helped = set(main_module.EXIT_CODES)
    told = {int(row[0]) for row in rows("Exit codes")}
    assert told == helped
    assert {cls.exit_code for cls in classes()} <= told
    for code in (supervisor.DRAINED, supervisor.DECLARED_DEAD, holder.BROKEN):
        assert re.search(rf"\b{code}\b", PAGE)


def test_every_kind_of_failure_says_what_it_costs() -> None:
    told = {row[0].strip("`"): row for row in rows("How an attempt fails")}
    assert told.keys() == {kind.value for kind in ErrorKind}
    for kind, spend in SPENDS.items():
        if spend in (Spend.ROUND, Spend.PERSON):
            assert "person" in " ".join(told[kind]) or "accept" in " ".join(told[kind]), kind
        elif spend in COSTS:
            assert told[kind][2].startswith(COSTS[spend]), kind
        else:
            assert "fails" in told[kind][2], kind
    for code in EXIT_CODES:
        assert str(code) in told[EXIT_CODES[code]][1]


def test_what_halts_a_plan_or_a_store_is_there() -> None:
    text = " ".join(" ".join(row) for row in rows("What stops more than one task"))
    assert PauseReason.BREAKER.value in text
    assert "store_halted" in text and "store_rewound" in text
