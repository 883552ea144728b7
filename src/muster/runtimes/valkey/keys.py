"""What keys and channels are called.

`{namespace}` in front keeps several stores apart that share a Valkey; without one there is nothing in front.
An agent's id is that of the worker that runs it, which no other one in the store has.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

NAMESPACE = re.compile(r"[A-Za-z0-9_-]{0,40}")
ALL = "global"
"""Stands for the workspace of what concerns them all."""
_PLAIN = re.compile(r"[A-Za-z0-9._-]{1,128}")


def session_name(session_key: str) -> str:
    """One with odd characters goes by its hash: agents choose them."""
    plain = not session_key or _PLAIN.fullmatch(session_key)
    return session_key if plain else hashlib.sha256(session_key.encode()).hexdigest()


class ValkeyKeys(NamedTuple):
    namespace: str = ""

    def named(self, name: str) -> str:
        return f"{self.namespace}:{name}" if self.namespace else name

    # -- what the store holds, as it was a moment ago

    def pending(self, workspace_id: int) -> str:
        """Sorted set: what may be claimed; of a higher priority first, then the older one."""
        return self.named(f"tasks:pending:{workspace_id}")

    def active(self, workspace_id: int) -> str:
        """Set of `task:session`."""
        return self.named(f"tasks:active:{workspace_id}")

    def held(self, agent_id: str) -> str:
        """Hash: since when it holds which task."""
        return self.named(f"agent:tasks:{agent_id}")

    def status(self, agent_id: str) -> str:
        """Hash: its status, its task, and when it was heard."""
        return self.named(f"agent:status:{agent_id}")

    def stale(self) -> str:
        """Sorted set: agents that are silent, by when they were heard."""
        return self.named("coordinator:stale_agents")

    def shown(self) -> str:
        """Who has written all these, and how often: it is not so any more where this is gone, or another one."""
        return self.named(f"coordinator:shown:{ALL}")

    def session(self, session_key: str) -> str:
        """Hash: whose session that is."""
        return self.named(f"session:context:{session_name(session_key)}")

    # -- what is heard

    def heartbeat(self, agent_id: str) -> str:
        return self.named(f"agent:heartbeat:{agent_id}")

    def rate(self, caller: str, second: int) -> str:
        """Counter: requests of one caller in one second.  Who that is, nobody reads from it."""
        hashed = hashlib.sha256(caller.encode()).hexdigest()[:32]
        return self.named(f"rate:requests:{hashed}:{second}")

    def recovery(self, workspace_id: int) -> str:
        """List: tasks that may be lost."""
        return self.named(f"coordinator:recovery_queue:{workspace_id}")

    # -- channels

    def task_events(self, workspace_id: int) -> str:
        return self.named(f"tasks:events:{workspace_id}")

    def agent_events(self, workspace_id: int) -> str:
        return self.named(f"agents:events:{workspace_id}")

    def commands(self, workspace: int | str) -> str:
        """Channel: commands to the servers; those for all workspaces in ALL."""
        return self.named(f"coordinator:commands:{workspace}")
