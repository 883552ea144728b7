"""The audit as a whole: seals are added, its wholeness is judged."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from muster.engine.fence import check_term
from muster.engine.service import PAGE_ROWS
from muster.engine.view import View
from muster.model import commands as c
from muster.model.answers import AuditReport, Done
from muster.model.errors import Conflict
from muster.model.seals import GENESIS, Signer, Verdict
from muster.ports.store import Reads

LOST_HEAD = "lost_head"
"""The newest head in the log that the store was known to lack when it was restored, and the proof of that."""


async def add_seal(view: View, command: c.AddSeal) -> Done:
    """Raises Conflict where the events up to there were sealed meanwhile."""
    await check_term(view.tx, command.term)
    last = await view.tx.last_seal()
    if command.seal.previous != (last.head if last else GENESIS):
        raise Conflict("these events were sealed by somebody else")
    await view.tx.add_seal(command.seal)
    return Done()


class Auditor:
    """Looks for an edit, a hole or a cut in one workspace's events.  `logged_heads` are those that the log names,
    each after its workspace, oldest first."""

    def __init__(
        self,
        reads: Reads,
        signer: Signer,
        logged_heads: Callable[[], list[tuple[int, str]]],
        workspace_id: int,
    ) -> None:
        self._reads = reads.of(workspace_id)
        self._signer = signer
        self._logged_heads, self._workspace_id = logged_heads, workspace_id

    async def verify(self) -> AuditReport:
        logged = await asyncio.to_thread(self._logged_heads)  # first: a seal is logged after it was made
        verdict = Verdict(self._signer)
        known = set[str]()
        while seals := await self._reads.seals(verdict.to_id, 1):
            (seal,) = seals
            # One more than it covers: what was put in between shows as well.
            events = await self._reads.numbered_events(verdict.to_id, seal.to_id, seal.count + PAGE_ROWS)
            if len(events) < seal.count and seal.pruned_at_ms is None:
                (seal,) = await self._reads.seals(verdict.to_id, 1)  # perhaps it was pruned just now
            verdict.take(seal, events)
            known.add(seal.head)
            await asyncio.sleep(0)  # the owner has others to answer
        lost = await self._compare_log(verdict, logged, known)
        unsealed, made = await self._reads.tail(verdict.to_id)
        if unsealed != made:
            verdict.find(f"{made} events came after the last seal and {unsealed} are there")
        await self._look_for_cuts(verdict)
        return AuditReport(
            whole=not verdict.problems,
            problems=tuple(verdict.problems),
            seals=verdict.seals,
            sealed=verdict.sealed,
            unsealed=unsealed,
            pruned=verdict.pruned,
            lost=lost,
            head=verdict.head,
        )

    async def _compare_log(self, verdict: Verdict, logged: list[tuple[int, str]], known: set[str]) -> int:
        """Finds heads that no seal has; how many of them a person has known to be lost (see `Restored`)."""
        told, _, proof = (await self._reads.store_meta(LOST_HEAD) or "").partition(" ")
        heads = [head for _, head in logged]
        accounted = heads.index(told) + 1 if told in heads and proof == self._signer.loss_proof(told) else 0
        own = (at for at, (workspace_id, _) in enumerate(logged) if workspace_id == self._workspace_id)
        lost = [at for at in own if heads[at] not in known]
        cut = [heads[at] for at in lost if at >= accounted]
        if cut:
            verdict.find(
                f"the log names {len(cut)} heads that no seal has, the last one is {cut[-1]}: "
                "events and their seals were cut off or lost"
            )
        return len(lost) - len(cut)

    async def _look_for_cuts(self, verdict: Verdict) -> None:
        """A task's row knows how many events it has had: a hole or a cut shows without any seal."""
        after = 0
        while page := await self._reads.event_spans(after, PAGE_ROWS):
            after = page[-1].task_id
            for span in page:
                if span.whole(pruned=verdict.pruned > 0):
                    continue
                verdict.find(
                    f"task {span.task_id} has had {span.expected} events and {span.count} are there, "
                    f"the last one is number {span.last}"
                )
            await asyncio.sleep(0)
