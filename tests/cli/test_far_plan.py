"""A plan of a server elsewhere, and the copy of its file that whoever has added it has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cli_owner import Cli, Ran
from far_servers import SECRET, FarOwner, far_owner
from muster.model import commands as c

PLAN = """\
# Site
- [ ] Page {#page agent=shell}
  true
- [ ] Index {#index agent=shell}
  true
- [x] Old {#old agent=shell}
  true
"""


@pytest.fixture
def far(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FarOwner]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    with far_owner(tmp_path / "elsewhere") as made:
        yield made
    assert not (root / ".muster").exists(), "nothing is begun where a command is given"


@pytest.fixture
def ask(cli: Cli, far: FarOwner) -> Callable[..., Ran]:
    def run(*words: str) -> Ran:
        return cli(*words, env={"MUSTER_SERVER": far.url, "MUSTER_TOKEN": SECRET})

    return run


def test_boxes_of_what_is_done_are_ticked_in_ones_own_copy(ask: Callable[..., Ran], root: Path) -> None:
    file = root / "site.md"
    file.write_text(PLAN)
    assert ask("plan", "add", "site.md").code == 0
    assert ask("task", "complete", "site/page").code == 0
    assert file.read_text() == PLAN, "the server has no such file"
    ticked = ask("plan", "tick", "site.md")
    assert (ticked.code, "every box is as its task" in ticked.out) == (0, True), ticked.err
    assert file.read_text() == PLAN.replace("[ ] Page", "[x] Page"), "and no other byte is another one"
    file.write_text(file.read_text().replace("[ ] Index", "[x] Index"))
    assert "1 box differs: index" in ask("plan", "tick", "site.md").out


def test_the_check_of_a_plan_asks_the_server_that_it_would_go_to(
    ask: Callable[..., Ran], far: FarOwner, root: Path
) -> None:
    (root / "site.md").write_text(PLAN.replace("Index {#index agent=shell}", "Index {#index agent=gpu}"))
    told = ask("plan", "check", "site.md")
    assert told.code == 1 and "task index wants agent gpu, which is neither" in told.out
    far.register("worker-gpugpugp", hostname="gpu-host", pid=7, agents=("gpu",), general=())
    told = ask("plan", "check", "site.md")
    assert (told.code, "nothing looks odd" in told.out) == (0, True), told.out


def test_the_output_of_a_command_comes_from_a_server_as_it_was(
    ask: Callable[..., Ran], far: FarOwner
) -> None:
    offers = {"gpu": c.Offer(kind="command")}
    far.register("worker-gpugpugp", hostname="gpu-host", agents=("gpu",), general=(), offers=offers)
    task = c.Spec(title="T", key="t", agent="gpu")
    far.do(c.Enqueue(plan="far", source=None, actor="u", tasks=(task,)))
    [job] = far.do(c.Claim(worker_id="worker-gpugpugp", request_id="r")).jobs
    far.begin(job)
    far.log(job.task_id, 1, b"gr\374n\n")
    assert ask("logs", "far/t").raw == b"gr\374n\n"


def test_a_file_whose_plan_is_not_there_is_refused(ask: Callable[..., Ran], root: Path) -> None:
    (root / "other.md").write_text(PLAN.replace("Site", "Other"))
    refused = ask("plan", "tick", "other.md")
    assert (refused.code, "other" in refused.err) == (3, True), refused.err
