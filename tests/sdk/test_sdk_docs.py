"""Every example of the page is run, and checked for its types."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pages import blocks
from patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
EXAMPLES = blocks(ROOT / "docs" / "sdk.md", "python")


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_runs(number: int, tmp_path: Path):
    program = tmp_path / "example.py"
    program.write_text(EXAMPLES[number])
    argv = [sys.executable, "-W", "error", str(program)]
    if "def test_" in EXAMPLES[number]:
        own = ("-q", "-p", "no:cacheprovider", "--basetemp", str(tmp_path / "base"))
        argv = [sys.executable, "-m", "pytest", *own, str(program)]
    done = subprocess.run(
        argv,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), EXAMPLES[number]


def test_examples_have_the_types_that_they_say(tmp_path: Path):
    files = []
    for number, example in enumerate(EXAMPLES):
        files.append(tmp_path / f"example_{number}.py")
        files[-1].write_text(example)
    files.append(tmp_path / "wrong.py")
    files[-1].write_text(WRONG)
    argv = [sys.executable, "-m", "mypy", "--strict", "--config-file", str(ROOT / "pyproject.toml")]
    done = subprocess.run(
        [*argv, *map(str, files)], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert all("wrong.py" in error for error in errors), done.stdout + done.stderr
    assert len(errors) == WRONG.count("# wrong"), done.stdout + done.stderr


WRONG = """
import muster

app = muster.App("wrong")


@app.task
def plain(n: int) -> str:
    return str(n)


@app.task(retries=1)
def with_context(ctx: muster.TaskContext, n: int) -> str:
    return ctx.step("a", str, n)


@app.task
async def later(ctx: muster.AsyncTaskContext) -> int:
    return 1


plain.enqueue("x")  # wrong
with_context.enqueue()  # wrong
a: int = plain.enqueue(1).result()  # wrong
b: str = later.enqueue().result()  # wrong
c: str = with_context.enqueue(1).result()
d: int = later.enqueue().result()
"""
