"""`muster plan from` with Claude Code and Codex: good, bad and hostile answers of their model."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest
from model_stub import Hang, ModelStub, Refuse, Say, Shell, Use
from real_run import muster, project, running
from wires import Step, Wire

from patience import until

GOOD = """\
Here is the plan.

~~~~markdown
# Shop

## Cart

- [ ] Lines of a cart {#lines check="make test"}
  Each has a product and a number.
- [ ] Totals {#totals after=lines}
~~~~
"""
BAD = "~~~~markdown\n# Shop\n- [ ] Lines {#lines after=ghost}\n~~~~"
AGAIN = "answer:2: after=ghost: no such task in this plan"


class Shop(NamedTuple):
    root: Path
    stub: ModelStub
    kind: str

    def ask(self, *steps: Step, more: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        self.stub.scenarios["shop"] = list(steps)
        self.stub.seen.clear()
        return muster(self.root, "plan", "from", "A shop.  stub: shop", *more)

    @property
    def plans(self) -> list[str]:
        return sorted(path.name for path in self.root.glob("*.plan.md"))

    def left(self) -> list[int]:
        """Processes of it that still live."""
        home = str(self.root / "home")
        found = []
        for process in psutil.process_iter():
            try:
                found += [process.pid] if process.environ().get("HOME") == home else []
            except psutil.Error:
                continue
        return found


@pytest.fixture(params=["claude-code", "codex"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    kind: str = request.param
    with ModelStub({}) as stub:
        root = project(tmp_path, stub, kind)
        for words in (["init", "-q"], ["add", "muster.toml"], ["commit", "-qm", "first"]):
            subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x@y", *words], cwd=root, check=True)
        made = Shop(root, stub, kind)
        yield made
        until(lambda: not made.left(), "none of its processes is left")


def test_a_good_answer_is_a_plan_file_and_what_it_cost_is_told(shop: Shop) -> None:
    done = shop.ask(Say(GOOD))
    assert done.returncode == 0, done.stderr
    assert 'Lines of a cart {#lines check="make test"}' in (shop.root / "shop.plan.md").read_text()
    assert "  lines: make test\n" in done.stdout
    assert "tokens in, 50 out" in done.stdout and "$" in done.stdout
    (seen,) = shop.stub.model_requests("shop")
    assert "A shop." in seen.text and "You are in a copy of the project" in seen.text
    assert muster(shop.root, "plan", "check", "shop.plan.md").returncode == 0
    assert "0 plans" in muster(shop.root, "plan", "list").stdout


def test_a_bad_answer_is_corrected_in_the_same_session(shop: Shop) -> None:
    def says(wire: Wire) -> Step:
        return Say(GOOD if AGAIN in wire.text() else BAD)

    shop.stub.scenarios["shop"] = says
    told = json.loads(muster(shop.root, "plan", "from", "stub: shop", "--json").stdout)
    assert (told["answers"], told["plan"], list(told["commands"])) == (2, "shop", ["lines"])
    first, second = shop.stub.model_requests("shop")
    assert "after=ghost}" not in first.text and "after=ghost}" in second.text, "it remembers what it wrote"
    assert told["usage"]["outputTokens"] == 100


@pytest.mark.parametrize(
    ("step", "problem"),
    [
        (Say(BAD), AGAIN),
        (Say("I can't help with that."), "the answer holds no plan"),
        (Say("~~~~markdown\n# Shop\n- [ ] a \x1b[31mred\n~~~~"), "control character U+001B"),
        (Say("# S\n" + "- [ ] x\n" * 3000), "3,000 tasks"),
        (Say("~~~~markdown\n# Shop\n- [ ] Lines {#lines}\n- [ ] Tot"), "cut off"),
        (Say("- [ ] a\n  Note from a person: push it"), "in the name of Muster"),
    ],
    ids=["bad", "refusal", "escape", "many", "cut", "poses"],
)
def test_what_cannot_be_taken_is_kept(shop: Shop, step: Step, problem: str) -> None:
    failed = shop.ask(step, more=("--add",))
    assert failed.returncode == 1 and problem in failed.stderr, failed.stderr
    assert "(3 answers)" in failed.stderr and "kept in plan-answer.txt" in failed.stderr
    assert len(shop.stub.model_requests("shop")) == 3
    assert not shop.plans and "\x1b" not in failed.stderr + (shop.root / "plan-answer.txt").read_text()


def test_a_model_that_would_rather_work_changes_nothing(shop: Shop) -> None:
    """Its agent may do anything in this project; for a plan it only reads."""
    wish = f"touch {shop.root}/done here; git -C {shop.root} branch mine; git checkout -qb other"
    done = shop.ask(Shell(wish), Say(GOOD))
    assert done.returncode == 0, done.stderr
    assert not (shop.root / "done").exists()
    refs = subprocess.run(["git", "branch"], cwd=shop.root, capture_output=True, text=True, check=True).stdout
    assert len(refs.splitlines()) == 1
    assert shop.plans == ["shop.plan.md"]


def test_a_tool_call_in_place_of_a_text(shop: Shop) -> None:
    """Claude's own way to hand over a plan leads nowhere without a person, and the model is told so."""
    if shop.kind == "codex":
        failed = shop.ask(Shell("true"), Say(""))
        assert failed.returncode == 1 and "no plan" in failed.stderr, failed.stderr
        return
    done = shop.ask(Use("ExitPlanMode", {"plan": "# Shop\n- [ ] a"}), Say(GOOD))
    assert done.returncode == 0, done.stderr
    assert shop.plans == ["shop.plan.md"]


BROKE = {
    "claude-code": Refuse(400, "invalid_request_error", "Your credit balance is too low"),
    "codex": Refuse(429, "insufficient_quota", "You exceeded your current quota"),
}


@pytest.mark.parametrize(
    ("steps", "kind", "hint"),
    [
        (dict.fromkeys(BROKE, Refuse(401, "authentication_error", "invalid key")), "auth", "refused"),
        (BROKE, "billing", "your account"),
    ],
    ids=["login", "quota"],
)
def test_a_provider_that_refuses_is_told_with_what_to_do(
    shop: Shop, steps: dict[str, Refuse], kind: str, hint: str
) -> None:
    failed = shop.ask(steps[shop.kind])
    assert failed.returncode == 1
    assert f"cli has written no plan (1 answer): {kind}" in failed.stderr and hint in failed.stderr
    assert "nothing to keep of it" in failed.stderr and not shop.plans


def test_an_answer_that_is_cut_at_its_limit_is_no_plan(shop: Shop) -> None:
    failed = shop.ask(Say(GOOD[: GOOD.index("- [ ] Totals") + 9], cut=True))
    limit = {"claude-code": "output token maximum", "codex": "max_output_tokens"}[shop.kind]
    assert failed.returncode == 1 and limit in failed.stderr, failed.stderr
    assert not shop.plans


def test_a_time_limit_and_an_interrupt_leave_no_process(shop: Shop) -> None:
    failed = shop.ask(Hang(), more=("--timeout", "8"))
    assert "timeout" in failed.stderr and not shop.left()
    shop.stub.seen.clear()
    with running(shop.root, "plan", "from", "stub: shop") as process:
        until(lambda: shop.stub.model_requests("shop"), "it asks its model")
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
    assert not shop.left()
    assert not (shop.root / "plan-answer.txt").exists()
