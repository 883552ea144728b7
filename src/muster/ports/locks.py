"""What a transaction takes for itself before it decides.

A store with one writer has nothing to lock.  One with several servers holds until the transaction ends what is
named here, and every task that `TaskTx.tasks` or `TaskTx.ready` has returned: nobody else decides on it
meanwhile.  Whoever has waited for another one's locks reads anew.  Where two wait for each other, or a row that
is written was changed since it was read, the transaction raises Contended, and is run again as a whole.
"""

from __future__ import annotations

from msgspec import Struct

GRANTS = "grants"
"""Every transaction that may grant an epoch shares it from its beginning: none of
them does while the base of epochs is raised."""
TERM = "term"
"""The coordinator's, shared by those who write under it, before they hold any task."""
VAULT = "vault"
"""Shared by who seals something, until that is written; no other key takes over meanwhile."""
STORE_WIDE = frozenset({GRANTS, TERM, VAULT})
"""The store's own, also where one workspace's part of a transaction takes them.  All others are a workspace's."""
EDGES = "edges"
"""Dependencies that are added to what is there already: two that close a cycle never see each other."""
PLANS = "plans"
"""New ones: what two servers are asked to add at once is one plan, and not two of like names."""
CREW = "crew"
PEOPLE = "people"
WEBHOOKS = "webhooks"
PLAN_FILES = "plan files"
"""What is kept of them."""
AUDIT = "audit"
"""The chain of seals."""
TOUCHES = "touches"
"""Which files are worked on."""
WRITERS = "writers"
"""Agents that share one folder for what they write."""


def worker_lock(worker_id: str) -> str:
    return f"worker {worker_id}"


def agent_lock(name: str) -> str:
    """Of its slots."""
    return f"agent {name}"


def limit_lock(key: str) -> str:
    return f"limit {key}"


class Locks(Struct, frozen=True):
    names: frozenset[str] = frozenset()
    """Held by one transaction of the workspace at a time."""
    shared: frozenset[str] = frozenset()
    """Held by any number that share it, or by one that names it in `names`."""
    tasks: frozenset[int] = frozenset()
    ending: frozenset[int] = frozenset()
    """Those of the tasks that may end: what waits for them is held with them."""

    def __bool__(self) -> bool:
        return bool(self.names or self.shared or self.tasks)


class Ahead(Struct, frozen=True):
    """What the work of a transaction asks for first, all of one workspace: a store to which each question costs
    time may take it by few.  The work asks for all of it all the same."""

    workspace_id: int
    locks: Locks
    plans: frozenset[str] = frozenset()
    """Names of those that it looks for."""
    keys: frozenset[str] = frozenset()
    """Of tasks that it looks for in these plans."""
    adds: int = 0
    """So many tasks it adds, if all that is asked is granted."""
    only_adds: bool = False
    """It does nothing else, and adds few."""


def locks(*names: str) -> Locks:
    return Locks(names=frozenset(names))


TERM_SHARED = Locks(shared=frozenset({TERM}))
VAULT_SHARED = Locks(shared=frozenset({VAULT}))
