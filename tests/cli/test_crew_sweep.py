"""What a kill ends: all that a dead worker leaves behind, whatever it calls itself, and nobody elsewhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from patience import PATIENCE_S

SCRIPT = """
import os, signal, subprocess, sys, time
from pathlib import Path
from muster.hosts.local_host import become_subreaper
from muster.app import crew as module, leftovers
from muster.app.interrupts import Interrupts
from muster.config.project import Project
from muster.config.settings import Config

leftovers.LOOK_S = 3600.0  # only what is noticed counts
assert become_subreaper()
crew = module.SupervisedCrew(
    Project(Path(sys.argv[1])), Config(), 1, say=print, actor="user:ann", interrupts=Interrupts()
)
# A worker whose agent's process has shed its mark and its session, and is noted nowhere.
worker = subprocess.Popen(
    ["sh", "-c", "env -i setsid sleep 600 & echo $!; exec sleep 600"],
    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True, text=True,
)
left = int(worker.stdout.readline())
child = crew.supervisor.workers[0]
child.process, child.due_s = worker, None
crew.supervisor.owner.due_s = None
crew.supervisor.draining = True
crew.tick()
os.kill(left, 0)  # not before its worker is dead
worker.kill()
deadline_s = time.monotonic() + 100
while Path(f"/proc/{left}").exists():  # until it is collected as well
    if time.monotonic() > deadline_s:
        os.kill(left, signal.SIGKILL)
        sys.exit("it was left")
    crew.tick()
    time.sleep(0.01)
print("gone")
"""


def test_the_leftovers_of_a_dead_worker_are_killed_when_it_is_noticed(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    ran = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert ran.stdout.splitlines()[-1:] == ["gone"], ran.stderr


FAR = """
import sys
from pathlib import Path
from muster.app import leftovers
from muster.app.interrupts import DRAIN
from muster.app.remote_crew import RemoteCrew
from muster.config.project import Project
from muster.config.settings import Config

class Interrupted:
    asked = 0
    @property
    def level(self):
        self.asked += 1
        return DRAIN + 1 if self.asked > 60 else 0

looks, look = [], leftovers.adopted_orphans
leftovers.adopted_orphans = lambda pids: looks.append(pids) or look(pids)
leftovers.LOOK_S = 3600.0
crew = RemoteCrew(
    Project(Path(sys.argv[1])), Config(), server="http://127.0.0.1:9", token="t", workers=1, say=print
)
crew.work(Interrupted())
print(looks)
assert [len(pids) for pids in looks] == [1, 0]  # one at work, and one once its worker is gone
"""


def test_workers_for_a_server_elsewhere_cost_no_look_through_all_processes_each_tick(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", FAR, str(tmp_path)]
    ran = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert ran.returncode == 0, ran.stdout + ran.stderr


NOT_OURS = """
import sys
from pathlib import Path
from muster.app import crew as module
from muster.app.interrupts import Interrupts
from muster.config.project import Project
from muster.config.settings import Config

module.KILL_S = 36000.0
crew = module.SupervisedCrew(
    Project(Path(sys.argv[1])), Config(), 0, say=print, actor="user:ann", interrupts=Interrupts()
)
assert crew.start()
crew.api.call("PUT", "/api/v1/agents/dev-1", {"actor": "user:ann"})
crew.kill()
print([worker["hostname"] for worker in crew.api.get("/api/v1/workers")])
crew.close()
"""


def test_killing_waits_for_no_agent_that_serves_itself(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", NOT_OURS, str(tmp_path)]
    ran = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert ran.stdout.splitlines()[-1:] == ["['(by itself)']"], ran.stderr
