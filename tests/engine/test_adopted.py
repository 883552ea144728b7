"""S19: what a copied store says of the original's crew."""

from __future__ import annotations

import pytest
from engine_rig import W1, W2, Rig, release

from muster.model import commands as c
from muster.model.errors import Conflict, StaleEpoch

ADOPT = c.Restored(actor="ada", incarnation="another", project="copy", copied=True)


@pytest.mark.promise("S19")
def test_the_crew_of_the_original_is_none_of_the_copys(rig: Rig) -> None:
    rig.enqueue({"a": [], "b": [], "by-hand": [], "later": ["a"]})
    rig.register(W1)
    first, second = rig.claim(W1, 2)
    rig.start(first)
    answer = rig.do(ADOPT)
    assert answer.lost == 2
    for job in (first, second):
        with pytest.raises(StaleEpoch):
            rig.do(c.Complete(task_id=job.task_id, epoch=job.epoch, result="1"))
    with pytest.raises(Conflict):
        rig.claim(W1)
    rig.register(W2)
    again = rig.claim(W2)
    assert {job.key for job in again} == {"a", "b", "by-hand"}
    assert min(job.epoch for job in again) > answer.base
    assert {key: view.attempt_count for key, view in rig.views().items()} == {
        "a": 2,
        "b": 2,
        "by-hand": 1,
        "later": 0,
    }
    assert "store_adopted" in [event.event for event in rig.events()]
    rig.audit()


def test_a_session_of_the_original_is_not_resumed_and_its_checkpoint_is(rig: Rig) -> None:
    rig.enqueue({"a": []})
    rig.register(W1)
    (job,) = rig.claim(W1)
    rig.do(c.Start(task_id=job.task_id, epoch=1, token_hash="a" * 64, session_key="theirs"))
    rig.do(c.SaveCheckpoint(task_id=job.task_id, epoch=1, data=b"half"))
    rig.do(ADOPT)
    rig.register(W2)
    (again,) = rig.claim(W2)
    assert (again.session_key, again.checkpoint) == (None, b"half")
    rig.do(c.Start(task_id=job.task_id, epoch=again.epoch, token_hash="b" * 64, session_key="ours"))
    rig.do(release(again))
    assert rig.claim(W2)[0].session_key == "ours"


def test_a_store_that_was_restored_in_its_own_folder_keeps_its_crew(rig: Rig) -> None:
    rig.enqueue({"a": []})
    rig.register(W1)
    (job,) = rig.started(W1)
    assert rig.do(c.Restored(actor="ada", incarnation="another", project="own")).lost == 0
    assert rig.attempt(job).open
