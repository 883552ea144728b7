"""What the design says of providers' pools, as the reference model keeps them."""

from __future__ import annotations

from typing import Any

Row = dict[str, Any]

STALE = "stale_epoch"
FOR_A_PERSON = ("auth", "billing")


class ReferencePools:
    tasks: dict[str, Row]
    wall: int

    def __init__(self) -> None:
        self.pools: dict[str, Row] = {}
        """Agents whose provider refuses them, until when; None: until a person has seen to it."""

    @staticmethod
    def _open(task: Row) -> bool:
        return task["attempt"] is not None and task["attempt"]["state"] == "open"

    def _stale(self, task: Row, epoch: int) -> str:
        return "" if self._open(task) and task["attempt"]["epoch"] == epoch else STALE

    def _closed(self, agent: str) -> bool:
        """Nobody begins with it: it is closed, or somebody tries."""
        if agent not in self.pools:
            return False
        pool = self.pools[agent]
        key, epoch = pool["trying"]
        tries = bool(key) and self._open(self.tasks[key]) and self.tasks[key]["epoch"] == epoch
        return pool["until"] is None or self.wall < pool["until"] or tries

    def _refuse(self, key: str, kind: str, after_s: float | None) -> None:
        """The agent's provider has refused; a milder word does not shorten that."""
        task = self.tasks[key]
        agent = task["attempt"]["agent"]
        pool = self.pools.get(agent, {"until": 0, "tries": 0, "trying": ("", 0)})
        mine = pool["trying"] == (key, task["epoch"])
        task["attempt"]["state"] = "released"
        if after_s is None and kind not in FOR_A_PERSON and not mine and self._closed(agent):
            return
        growing = min(300_000, 18_750 * 2 ** pool["tries"])
        wait = growing if after_s is None else max(1000, int(after_s * 1000))
        until = None if kind in FOR_A_PERSON else self.wall + wait
        if until is None or (pool["until"] is not None and until > pool["until"]):
            self.pools[agent] = {"until": until, "tries": pool["tries"] + 1, "trying": ("", 0)}

    def provider(self, key: str, epoch: int, *, refuses: bool) -> str:
        """Whether it is to give way, where it is not refused."""
        task = self.tasks[key]
        if refused := self._stale(task, epoch):
            return refused
        agent = task["attempt"]["agent"]
        pool = self.pools.get(agent)
        if not refuses:
            if pool is not None and pool["until"] is not None:
                del self.pools[agent]
            return ""
        if pool is None or not self._closed(agent):
            tries = pool["tries"] if pool else 0
            self.pools[agent] = {"until": self.wall, "tries": tries, "trying": (key, epoch)}
            return ""
        return "" if pool["trying"] == (key, epoch) else "gives way"
