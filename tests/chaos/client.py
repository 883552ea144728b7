"""People who go on working while everything falls: each operation is noted as ok, failed or unknown."""

from __future__ import annotations

import random
import threading
from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal

from rig import REPLY_S, Rig, spec
from wire import NoAnswer, NotSent, send

from muster.client.api import Api
from muster.model.errors import CommitUnknown, MusterError
from patience import PATIENCE_S

Outcome = Literal["ok", "failed", "unknown"]

PAUSE_S = 0.25
DEAF_SHARE = 0.15
"""Of the operations whose answer is not even listened to."""


@dataclass
class Operation:
    actor: str
    """Also the operation's name: everything that it did carries it."""
    kind: Literal["enqueue", "cancel", "retry"]
    outcome: Outcome
    said: str = ""
    plan: str = ""
    tasks: int = 0
    """How many the plan has."""
    task_id: int = 0


class Client:
    """A thread of its own; `close` before reading `operations`."""

    def __init__(self, rig: Rig, seed: int) -> None:
        self._rig = rig
        self._chance = random.Random(seed)
        self.operations: list[Operation] = []
        self.problems: list[str] = []
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="client", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._thread.join(PATIENCE_S)

    def counts(self) -> Counter[tuple[str, str]]:
        return Counter((operation.kind, operation.outcome) for operation in self.operations)

    def _run(self) -> None:
        api = Api(self._rig.backend.connect(), reply_s=REPLY_S)
        plans: list[str] = []
        while not self._closing.wait(self._chance.random() * 2 * PAUSE_S):
            kind = self._chance.choice(("enqueue", "cancel", "retry"))
            if kind == "enqueue" or not plans:
                self._enqueue(plans)
                continue
            try:
                tasks = api.get(
                    "/api/v1/agent-tasks",
                    {"plan": self._chance.choice(plans[-3:] if kind == "cancel" else plans[-20:])},
                )
            except MusterError:
                continue
            self._move(kind, tasks)
        api.close()

    def _ask(self, target: str, content: dict[str, Any]) -> tuple[Outcome, str]:
        hang_up_s = self._chance.random() * 0.02 if self._chance.random() < DEAF_SHARE else None
        try:
            place = self._rig.backend.place(self._chance)
            status, answer = send(place, target, content, hang_up_s=hang_up_s)
        except NotSent as error:
            return "failed", str(error)
        except NoAnswer as error:
            return "unknown", str(error)
        if status < 300:
            return "ok", str(answer)
        if isinstance(answer, dict) and answer.get("code") == CommitUnknown.code:
            return "unknown", str(answer)
        if status == 500:
            self.problems.append(f"{target} {content}: {answer}")
        return "failed", str(answer)

    def _enqueue(self, plans: list[str]) -> None:
        name, count = f"op{len(self.operations)}", self._chance.randint(1, 2)
        body = {
            "plan": name,
            "source": None,
            "tasks": [spec(f"t{n}") for n in range(count)],
            "actor": name,
        }
        outcome, said = self._ask("/api/v1/plans", body)
        if outcome == "unknown" and self._chance.random() < 0.5:
            # Whoever does not know asks again: the plan must not be there twice.
            again, said = self._ask("/api/v1/plans", body)
            outcome = again if again == "ok" else "unknown"
        self.operations.append(Operation(name, "enqueue", outcome, said, plan=name, tasks=count))
        if outcome == "ok":
            plans.append(name)

    def _move(self, kind: Any, tasks: list[dict[str, Any]]) -> None:
        over = [t for t in tasks if t["status"] in {"COMPLETED", "CANCELLED"}]
        # Where nothing else is there, what is over is cancelled: that is to be refused.
        # Retried is also what was cancelled this moment, and whose agent may still be at work.
        chosen = over if kind == "retry" else [task for task in tasks if task not in over] or tasks
        if not chosen:
            return
        task_id = self._chance.choice(chosen)["id"]
        actor = f"op{len(self.operations)}"
        outcome, said = self._ask(f"/api/v1/agent-tasks/{task_id}/{kind}", {"actor": actor})
        self.operations.append(Operation(actor, kind, outcome, said, task_id=task_id))
