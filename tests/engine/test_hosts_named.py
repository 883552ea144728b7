"""Where an attempt runs is told, where that is not the store's own host."""

from __future__ import annotations

from engine_rig import HOST, LEASE_S, W1, W2, Rig

from muster.engine.batch import drive
from muster.engine.policy import Policy


def test_a_reason_and_an_attempt_name_another_host() -> None:
    rig = Rig(Policy(lease_s=LEASE_S, hostname=HOST))
    rig.enqueue({"ours": (), "theirs": ()})
    rig.register(W1, slots=1)
    rig.register(W2, slots=1, hostname="host-b")
    hosts = {W1: HOST, W2: "host-b"}
    for worker, named in ((W1, W1), (W2, f"{W2} (at host-b)")):
        (job,) = rig.claim(worker, 1)
        assert rig.views()[job.key].why == f"starting on {named} with agent claude"
        rig.start(job)
        assert rig.views()[job.key].why == f"running on {named} with agent claude"
        (attempt,) = drive(rig.reads.attempts(job.task_id))
        assert attempt.host == hosts[worker]
