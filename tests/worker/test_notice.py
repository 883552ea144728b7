"""A notice reaches the agent as a file, whole or not at all, and goes away again."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from around import claimed_job, worker_context

from muster.model.answers import AttemptOrder, HeartbeatAnswer
from muster.ports.agent import Talk
from muster.ports.host import ProcessId
from muster.worker.orders import Orders
from muster.worker.runner import Runner
from muster.worker.speaking import Speaker
from muster.worker.workdir import Folder
from muster.worker.worker import Worker


def test_a_notice_is_a_file_that_every_attempt_knows(tmp_path):
    crew: Any = None
    with closing(Orders()) as orders:
        runner = Runner(crew, worker_context(tmp_path), claimed_job("shell"), orders)
        path = Path(runner._environment("token", Folder(tmp_path), None)["MUSTER_NOTICE"])
        path.parent.mkdir(parents=True)
        runner._notice.show([])
        assert not path.exists()
        runner._notice.show(["hurry"])
        assert path.read_text() == "hurry\n" and [*path.parent.iterdir()] == [path]
        runner._notice.show([])
        assert not path.exists()


def test_a_heartbeats_answer_brings_the_notice(tmp_path):
    unused: Any = None
    process = ProcessId(1, 1)
    options = {"hostname": "h", "boot_id": "b", "process": process, "slots": 1, "general": (), "offers": {}}
    worker = Worker(unused, worker_context(tmp_path), unused, orphan_grace_s=1, **options)
    with closing(Orders()) as orders:
        worker._held[7, 1] = orders
        order = AttemptOrder(task_id=7, epoch=1, current=True, notice="hurry")
        pending = worker._obey(HeartbeatAnswer(known=True, drain=False, attempts=(order,)), 0.0)
        assert orders.notice == "hurry" and orders.given is None
        assert not pending, "a notice must not make the heart beat faster"


def test_each_notice_is_said_once_and_again_where_it_is_due_again():
    said: list[bytes] = []
    process: Any = type("Listener", (), {"say": lambda _, data: said.append(data) or True})()
    speaker = Speaker(process, Talk(first=b"", stop=b"", message=str.encode))
    for notice in ("late", "late\n\nuse tabs", "use tabs", "use tabs\n\nuse tabs", "use tabs\n\nlate"):
        speaker.tell(notice, "")
    assert said == [b"late", b"use tabs", b"use tabs", b"late"]
