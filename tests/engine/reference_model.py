"""What the design (parts 2 and 6) says of a task's life, in dicts: the engine must agree with it step for step.
Each command returns the code of its refusal, "" where it is accepted."""

from __future__ import annotations

from typing import Any

from reference_pools import STALE, ReferencePools, Row

ILLEGAL = "illegal_move"
WAITING = ("PENDING", "ABORTED")
HELD = ("ASSIGNED", "RUNNING")
FINAL = ("COMPLETED", "FAILED", "CANCELLED", "ARCHIVED")
FREE_OF_CHARGE = ("quota", "rate_limit", "auth", "billing")
HOPELESS = ("invalid", "out_of_memory", "expired")
STOP_BY_MS = 15_000
NO_TOKEN = ""
"""Of an attempt that began with its claim: its worker itself does the work."""
LOSSES_MAX = 3
PUBLISH_TRIES = 5


def backoff_ms(count: int) -> int:
    """30 s doubling up to 5 min, of which the test's chance takes the half."""
    return min(300, 30 * 2 ** min(count, 60)) * 500


class ReferenceModel(ReferencePools):
    def __init__(self, lease_ms: int) -> None:
        super().__init__()
        self.lease_ms = lease_ms
        self.tasks: dict[str, Row] = {}
        self.used: set[tuple[str, str]] = set()
        self.wall = self.mono = 0
        self.boot = ""
        self.workers: dict[str, str] = {}
        """With the boot that each was heard in."""

    def add(self, key: str, needs: list[str], **said: Any) -> None:
        unmet = {parent for parent in needs if not self._passes(parent)}
        self.tasks[key] = {
            "status": "PENDING", "generation": 1, "epoch": 0, "unmet": unmet, "due": None, "paused": None,
            "retries": 0, "losses": 0, "linger": None, "skipped": False, "pin": None, "pin_until": None,
            "question": "", "attempt": None, "parents": set(needs), "checkpoint": None, "done": None,
            "error": None, **said,
        }  # fmt: skip
        for parent in needs:
            self._tell_child_of_dead(parent, key)
        self._close_group(key)

    def _close_group(self, key: str) -> None:
        """A group is done with the last of what it waits for; one without waits for the first task below it."""
        task = self.tasks[key]
        if task["group"] and task["parents"] and task["status"] == "PENDING" and not task["unmet"]:
            self._done(key)

    def _passes(self, key: str) -> bool:
        """Those behind it may go on."""
        task = self.tasks[key]
        return task["status"] == "COMPLETED" or task.get("was_done", False) or task["skipped"]

    def ready(self, key: str) -> bool:
        task = self.tasks[key]
        free = task["due"] is None and task["linger"] is None and not task["group"]
        return task["status"] == "PENDING" and not task["unmet"] and free

    def open_of(self, worker: str) -> list[str]:
        tasks = self.tasks.items()
        return [key for key, task in tasks if self._open(task) and task["attempt"]["worker"] == worker]

    def claim(self, worker: str, request: str, slots: int, *, start: bool = False) -> list[tuple[str, int]]:
        held = self.open_of(worker)
        again = [key for key in held if self.tasks[key]["attempt"]["request"] == request]
        if again:
            self.used.add((worker, request))
            return sorted((key, self.tasks[key]["epoch"]) for key in again)
        if (worker, request) in self.used:
            return []
        ready = [key for key in self.tasks if self.ready(key)]
        able = [key for key in ready if not self._closed(self.tasks[key]["pin"] or "claude")]
        able.sort(key=lambda key: not (self.tasks[key]["done"] or self.tasks[key]["error"] == "lost"))
        agent_of = {key: self.tasks[key]["pin"] or "claude" for key in able}
        # Of a provider in doubt one tries first.
        first = {agent: key for key, agent in reversed(agent_of.items()) if agent in self.pools}
        able = [key for key in able if first.get(agent_of[key], key) == key]
        chosen = able[: max(0, min(slots, 4 - len(held)))]
        if chosen:
            self.used.add((worker, request))
        for key in chosen:
            task = self.tasks[key]
            task["status"] = "ASSIGNED"
            task["epoch"] += 1
            task["attempt"] = {
                "epoch": task["epoch"], "generation": task["generation"], "worker": worker, "request": request,
                "agent": task["pin"] or "claude", "state": "open", "token": None, "stop": None, "stop_by": None,
                "until": self.mono + self.lease_ms, "boot": self.boot, "said": task["done"], "kind": None,
                "killed": False, "refused": False, "lost_by_own_word": False,
            }  # fmt: skip
            if agent_of[key] in self.pools:
                self.pools[agent_of[key]]["trying"] = (key, task["epoch"])
            if start:
                self.start(key, task["epoch"], NO_TOKEN)
        return sorted((key, self.tasks[key]["epoch"]) for key in chosen)

    def _ended(self, task: Row, epoch: int, *states: str) -> bool:
        attempt = task["attempt"]
        return attempt is not None and attempt["epoch"] == epoch and attempt["state"] in states

    def start(self, key: str, epoch: int, token: str) -> str:
        task = self.tasks[key]
        if refused := self._stale(task, epoch):
            return refused
        attempt = task["attempt"]
        if task["status"] == "RUNNING" and attempt["token"] != token:
            return ILLEGAL
        task["status"], started = "RUNNING", attempt.get("started", self.wall)
        attempt.update(token=token, started=started, until=self.mono + self.lease_ms)
        return ""

    def beat(self, worker: str, key: str, epoch: int) -> bool:
        """Whether the attempt is current; it is renewed then, or comes back."""
        task, attempt = self.tasks[key], self.tasks[key]["attempt"]
        if attempt is None or attempt["worker"] != worker or attempt["epoch"] != epoch:
            return False
        if attempt["state"] == "lost":
            may = attempt["generation"] == task["generation"] and not attempt["killed"]
            if not may or task["status"] not in WAITING or task["pin"] not in (None, attempt["agent"]):
                return False
            task["status"] = "ASSIGNED" if attempt["token"] is None else "RUNNING"
            task["due"], task["losses"], task["error"] = None, max(0, task["losses"] - 1), None
            attempt["state"] = "open"
        if attempt["state"] != "open":
            return False
        attempt["until"], attempt["boot"] = self.mono + self.lease_ms, self.boot
        return True

    def declare(self, key: str, epoch: int, kind: str | None, *, by_worker: bool) -> str:
        if refused := self.working(key, epoch):
            return refused
        task = self.tasks[key]
        attempt = task["attempt"]
        if by_worker and attempt["kind"]:
            return ILLEGAL
        if attempt["said"] and (by_worker or attempt["kind"] == kind):
            return ""
        attempt.update(said=True, kind=kind)
        task["done"] = None if kind else epoch
        if not kind:
            task["expires"], task["losses"] = None, 0
        return ""

    def working(self, key: str, epoch: int, **changes: Any) -> str:
        """Progress, checkpoint, artifact."""
        task = self.tasks[key]
        refused = self._stale(task, epoch)
        if refused or task["status"] != "RUNNING":
            return refused or ILLEGAL
        task["attempt"].update(changes)
        return ""

    def checkpoint(self, key: str, epoch: int, data: bytes) -> str:
        refused = self.working(key, epoch)
        if not refused:
            self.tasks[key]["checkpoint"] = data
        return refused

    def complete(self, key: str, epoch: int) -> str:
        task = self.tasks[key]
        attempt = task["attempt"]
        if self._ended(task, epoch, "completed"):
            return ""
        if attempt and attempt["kind"] and self._ended(task, epoch, "failed", "released", "lost"):
            return ""
        if refused := self._stale(task, epoch):
            return refused
        if attempt["kind"]:
            self._fail(key, attempt["kind"])
        else:
            self._close(task, "completed")
            self._done(key)
        return ""

    def fail(self, key: str, epoch: int, kind: str, retry_after_s: float | None) -> str:
        task = self.tasks[key]
        said = task["attempt"] and task["attempt"]["kind"]
        # Of one that was reaped the coordinator has said why it is lost, not its holder.
        again = kind == "lost" and task["attempt"] and task["attempt"]["lost_by_own_word"]
        lost = ("lost",) if said or again else ()
        if self._ended(task, epoch, "failed", "released", *lost):
            return ""
        if refused := self._stale(task, epoch):
            return refused
        # A heartbeat that was on its way does not bring back what its holder has ended.
        task["attempt"]["killed"] = True
        task["attempt"]["lost_by_own_word"] = (said or kind) == "lost"
        self._fail(key, said or kind, retry_after_s)
        return ""

    def release(self, key: str, epoch: int) -> str:
        task = self.tasks[key]
        if self._ended(task, epoch, "released"):
            return ""
        if refused := self._stale(task, epoch):
            return refused
        self._give_back(task)
        return ""

    def _give_back(self, task: Row) -> None:
        if task["attempt"]["stop"] == "pause":
            task["status"], task["paused"] = "PAUSED", task["paused"] or "user"
        else:
            task["status"] = "PENDING"
        self._close(task, "released")

    def ask(self, key: str, epoch: int, question: str) -> str:
        task = self.tasks[key]
        if self._ended(task, epoch, "released") and task["question"] == question:
            return ""
        refused = self._stale(task, epoch)
        if refused or task["status"] != "RUNNING":
            return refused or ILLEGAL
        task.update(status="PAUSED", paused="question", question=question, linger=epoch, done=None)
        self._close(task, "released")
        return ""

    def gone(self, key: str, epoch: int) -> str:
        task = self.tasks[key]
        if task["attempt"] is None or task["attempt"]["epoch"] != epoch:
            return STALE
        if task["linger"] == epoch:
            task["linger"] = None
        return ""

    def _close(self, task: Row, state: str) -> None:
        task["attempt"]["state"] = state

    def _fail(self, key: str, kind: str, retry_after_s: float | None = None) -> None:
        task = self.tasks[key]
        task["error"], attempt = kind, task["attempt"]
        if kind != "lost":
            task["done"] = None
        wait: int | None = None
        if kind in FREE_OF_CHARGE:
            task["status"] = "PENDING"
            attempt["refused"] = True
            self._refuse(key, kind, retry_after_s)
        elif kind == "lost":
            task["losses"] += 1
            task["status"] = "ABORTED"
            if task["losses"] < (PUBLISH_TRIES if task["done"] else LOSSES_MAX):
                left = backoff_ms(task["losses"] - 2) - max(0, self.wall - attempt.get("started", self.wall))
                wait = 0 if task["losses"] == 1 else max(0, left)
        elif kind not in HOPELESS and task["retries"] < task["max_retries"]:
            task["status"], wait = "ABORTED", backoff_ms(task["retries"])
            task["retries"] += 1
        self._close(task, "released" if kind in FREE_OF_CHARGE else "lost" if kind == "lost" else "failed")
        if kind not in FREE_OF_CHARGE:
            if wait is None:
                task["status"], task["paused"] = "FAILED", None
                self._dead(key)
                return
            task["due"] = self.wall + wait
        if attempt["stop"] == "pause":
            task["status"], task["paused"] = "PAUSED", task["paused"] or "user"
        elif kind == "lost" and wait == 0:
            task["status"], task["due"] = "PENDING", None

    def lapsed(self, task: Row) -> bool:
        attempt = task["attempt"]
        late = attempt["stop_by"] is not None and self.mono >= attempt["stop_by"]
        return attempt["boot"] != self.boot or late or self.mono >= attempt["until"]

    def reap(self, key: str, epoch: int, *, proven: bool, killed: bool) -> str:
        task = self.tasks[key]
        if refused := self._stale(task, epoch):
            return refused
        attempt = task["attempt"]
        if not proven and not self.lapsed(task):
            return ILLEGAL
        trusted = attempt["boot"] == self.boot and self.mono < attempt["until"]
        if trusted and not proven and not killed and task["status"] == "RUNNING":
            task["linger"] = epoch
        if task["status"] == "ASSIGNED":
            self._give_back(task)
        else:
            attempt["killed"] = killed
            if attempt["stop"] is not None:
                self._give_back(task)
            else:
                self._fail(key, attempt["kind"] or "lost")
        return ""

    def promote(self, key: str, *, by_hand: bool) -> str:
        task = self.tasks[key]
        if not self._waits_to_try(task):
            return ILLEGAL
        if not by_hand and (task["due"] is None or task["due"] > self.wall):
            return ILLEGAL
        if by_hand:
            self._reopen(task)
        task["status"], task["due"] = "PENDING", None
        return ""

    @staticmethod
    def _waits_to_try(task: Row) -> bool:
        return task["status"] in WAITING and (task["due"] is not None or task["error"] in FREE_OF_CHARGE)

    def _reopen(self, task: Row) -> None:
        if task["attempt"] is not None and task["attempt"]["refused"]:
            self.pools.pop(task["attempt"]["agent"], None)

    def expire(self, key: str) -> str:
        task = self.tasks[key]
        if task["expires"] is None or task["expires"] > self.wall or task["status"] not in WAITING:
            return ILLEGAL
        task.update(status="FAILED", due=None, error="expired")
        self._dead(key)
        return ""

    def drop_pin(self, key: str) -> str:
        task = self.tasks[key]
        if task["pin_until"] is None or task["pin_until"] > self.wall:
            return ILLEGAL
        task["pin"] = task["pin_until"] = None
        return ""

    def new_boot(self) -> None:
        """A new owner: those of this boot get one fresh lease time."""
        for worker, boot in self.workers.items():
            for key in self.open_of(worker) if boot == self.boot else ():
                attempt = self.tasks[key]["attempt"]
                attempt["until"], attempt["boot"] = self.mono + self.lease_ms, self.boot
                if attempt["stop_by"] is not None:
                    attempt["stop_by"] = max(attempt["stop_by"], attempt["until"])

    def _stop(self, task: Row, action: str, stop_by_ms: int = STOP_BY_MS) -> None:
        task["attempt"].update(stop=action, stop_by=self.mono + stop_by_ms)

    def request_stop(self, key: str, epoch: int, action: str, stop_by_ms: int) -> str:
        task = self.tasks[key]
        if refused := self._stale(task, epoch):
            return refused
        had = task["attempt"]["stop"]
        if had not in (action, "pause") and not (had is not None and action == "release"):
            self._stop(task, action, stop_by_ms)
        return ""

    def pause(self, key: str) -> str:
        task = self.tasks[key]
        if task["status"] in HELD:
            if task["attempt"]["stop"] != "pause":
                self._stop(task, "pause")
                task["paused"] = "user"
        elif task["status"] in WAITING:
            task["status"], task["paused"] = "PAUSED", "user"
        elif task["status"] != "PAUSED":
            return ILLEGAL
        return ""

    def resume(self, key: str) -> str:
        task = self.tasks[key]
        if task["status"] in HELD and task["attempt"]["stop"] == "pause":
            task["attempt"]["stop"], task["paused"] = "release", None
            return ""
        if task["status"] != "PAUSED" or task["paused"] == "question":
            return ILLEGAL
        task.update(status="PENDING", paused=None, question="")
        self._close_group(key)
        return ""

    def answer(self, key: str) -> str:
        task = self.tasks[key]
        if task["status"] != "PAUSED" or task["paused"] != "question":
            return ILLEGAL
        task.update(status="PENDING", paused=None, question="")
        return ""

    def transfer(self, key: str, agent: str, timeout_s: int) -> str:
        task = self.tasks[key]
        if task["status"] in HELD:
            stop = task["attempt"]["stop"]
            if stop is None:
                self._stop(task, "transfer")
            elif stop == "transfer" and task["pin"] == agent:
                return ""
        elif task["status"] not in (*WAITING, "PAUSED"):
            return ILLEGAL
        task["pin"], task["pin_until"] = agent, self.wall + timeout_s * 1000
        return ""

    def cancel(self, key: str) -> str:
        task = self.tasks[key]
        if task["status"] == "CANCELLED":
            return ""
        if task["status"] in FINAL:
            return ILLEGAL
        if self._open(task):
            if task["attempt"]["token"] is not None:
                task["linger"] = task["epoch"]
            self._close(task, "cancelled")
        self._end_unwanted(task, skipped=False)
        self._dead(key)
        return ""

    def skip(self, key: str) -> str:
        task = self.tasks[key]
        if task["status"] == "CANCELLED" and task["skipped"]:
            return ""
        if task["status"] not in (*WAITING, "PAUSED", "FAILED"):
            return ILLEGAL
        self._end_unwanted(task, skipped=True)
        self._unblock(key)
        return ""

    def _end_unwanted(self, task: Row, *, skipped: bool) -> None:
        task.update(status="CANCELLED", due=None, paused=None, question="", done=None, error=None)
        task["skipped"] = skipped

    def by_person(self, key: str) -> str:
        task = self.tasks[key]
        if task["status"] == "COMPLETED":
            return ""
        if task["status"] not in ("PENDING", "PAUSED", "FAILED"):
            return ILLEGAL
        self._done(key)
        return ""

    def retry(self, key: str, *, fresh: bool) -> str:
        task = self.tasks[key]
        if self._waits_to_try(task):
            return ILLEGAL if fresh else self.promote(key, by_hand=True)
        if task["status"] not in ("FAILED", "CANCELLED", "COMPLETED"):
            return ILLEGAL
        self._reopen(task)
        task.update(status="PENDING", due=None, retries=0, losses=0, paused=None)
        task.update(question="", expires=None, skipped=False, error=None)
        task["generation"] += 1
        if fresh:
            task["checkpoint"] = task["done"] = None
        self._close_group(key)
        return ""

    def archive(self, key: str) -> str:
        task = self.tasks[key]
        if task["status"] not in FINAL:
            return ILLEGAL
        task["was_done"] = task["status"] == "COMPLETED" or task.get("was_done", False)
        task["status"] = "ARCHIVED"
        return ""

    def depend(self, key: str, parent: str) -> str:
        task = self.tasks[key]
        if key == parent or key in self._needed_by(parent):
            return "bad_input"
        if task["status"] not in (*WAITING, "PAUSED"):
            return ILLEGAL
        if parent not in task["parents"]:
            task["parents"].add(parent)
            if not self._passes(parent):
                task["unmet"].add(parent)
                self._tell_child_of_dead(parent, key)
            self._close_group(key)
        return ""

    def _needed_by(self, key: str) -> set[str]:
        found: set[str] = set()
        edge = {key}
        while edge:
            found |= edge
            edge = {parent for task in edge for parent in self.tasks[task]["parents"]} - found
        return found

    def _done(self, key: str) -> None:
        self.tasks[key].update(status="COMPLETED", due=None, paused=None, done=None, error=None)
        if self.tasks[key]["attempt"] is None or self.tasks[key]["attempt"]["state"] != "completed":
            self.tasks[key]["question"] = ""
        self._unblock(key)

    def _unblock(self, key: str) -> None:
        for child, task in self.tasks.items():
            if key in task["unmet"]:
                task["unmet"].discard(key)
                self._close_group(child)

    def _dead(self, key: str) -> None:
        for child, task in self.tasks.items():
            if key in task["unmet"]:
                self._tell_child_of_dead(key, child)

    def _tell_child_of_dead(self, parent: str, child: str) -> None:
        if self.tasks[parent]["status"] not in ("FAILED", "CANCELLED", "ARCHIVED") or self._passes(parent):
            return
        task = self.tasks[child]
        if task["on_failed"] == "run":
            task["unmet"].discard(parent)
            self._close_group(child)
        elif task["on_failed"] == "skip" and task["status"] in ("PENDING", "PAUSED"):
            self.skip(child)
