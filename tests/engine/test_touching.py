"""Files of a plan that a running task declares, or has changed so far, are left alone by the others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from engine_rig import W1, Rig, audited, complete, release

from muster.model import commands as c
from muster.model.answers import ClaimedJob
from muster.ports.runtime import READY


@pytest.fixture
def rig(several_servers: str) -> Iterator[Rig]:
    with audited() as made:
        made.register(slots=10)
        yield made


def changes(rig: Rig, job: ClaimedJob, files: str) -> None:
    rig.do(c.LiveDiff(task_id=job.task_id, epoch=job.epoch, files=files))


def taken(rig: Rig, slots: int = 10) -> list[str]:
    return [job.key for job in rig.started(slots=slots)]


@pytest.fixture
def scout(rig: Rig) -> ClaimedJob:
    """A running task that has not said what it changes, and changes src/x.py."""
    rig.enqueue({"scout": []})
    (job,) = rig.started()
    changes(rig, job, "a.txt,src/x.py")
    return job


def add(rig: Rig, *keys: str, touches: str = "src/**", plan: str = "api") -> None:
    rig.enqueue({key: [] for key in keys}, specs={key: {"touches": touches} for key in keys}, plan=plan)


def test_who_declares_what_another_one_has_changed_waits_until_that_one_ends(
    rig: Rig, scout: ClaimedJob
) -> None:
    add(rig, "late")
    assert taken(rig) == []
    assert rig.views()["late"].why == "waits for api/scout, which has changed src/x.py"
    assert READY in rig.apply(complete(scout)).topics
    assert taken(rig) == ["late"]


@pytest.mark.usefixtures("scout")
def test_those_behind_it_that_need_not_wait_go_first(rig: Rig) -> None:
    add(rig, "late", "later")
    rig.enqueue({"silent": []})
    add(rig, "apart", touches="docs/**")
    add(rig, "elsewhere", plan="web")
    assert sorted(taken(rig, slots=3)) == ["apart", "elsewhere", "silent"]


def test_files_that_were_put_back_are_free(rig: Rig, scout: ClaimedJob) -> None:
    add(rig, "late")
    changes(rig, scout, "a.txt")
    assert taken(rig) == ["late"]


def test_who_ends_and_takes_the_next_one_in_one_step_is_not_in_its_way(rig: Rig, scout: ClaimedJob) -> None:
    add(rig, "late")
    word = c.Complete(
        task_id=scout.task_id, epoch=scout.epoch, result="1", then=rig.claim_command(W1, slots=1)
    )
    assert [job.key for job in rig.do(word).next.jobs] == ["late"]


def test_what_an_attempt_that_gave_up_has_changed_is_in_nobodys_way(rig: Rig, scout: ClaimedJob) -> None:
    add(rig, "late")
    rig.do(release(scout))
    assert set(taken(rig)) == {"late", "scout"}
    assert rig.views()["scout"].why.startswith("running on ")


def test_two_that_have_changed_the_same_file_are_shown(rig: Rig, scout: ClaimedJob) -> None:
    rig.enqueue({"other": [], "apart": []})
    other, apart = rig.started()
    changes(rig, other, "src")
    changes(rig, apart, "docs/x.md")
    told = {key: view.why.partition("; ")[2] for key, view in rig.views().items()}
    assert told == {
        "scout": "also changes src, which api/other is changing",
        "other": "also changes src/x.py, which api/scout is changing",
        "apart": "",
    }
