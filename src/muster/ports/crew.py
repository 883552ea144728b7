"""What a worker needs from the rest of Muster; the same for a socket on this host and for a server far away."""

from __future__ import annotations

from typing import Protocol

from muster.model import commands as c
from muster.model.answers import Claimed, HeartbeatAnswer, Moved, Registered, SecretsGiven
from muster.model.commands import AskSecrets, AttemptCommand, Claim, Deregister, Heartbeat, Register
from muster.model.far_git import GitFetch, GitMoved, GitPart, GitPublish, GitReceived, GitSend
from muster.model.place import PlanPlace

COMMANDS: dict[str, type[c.Command]] = {
    "register": c.Register,
    "deregister": c.Deregister,
    "claim": c.Claim,
    "heartbeat": c.Heartbeat,
    "start": c.Start,
    "progress": c.Progress,
    "checkpoint": c.SaveCheckpoint,
    "artifact": c.AddArtifact,
    "ask": c.Ask,
    "complete": c.Complete,
    "fail": c.Fail,
    "release": c.Release,
    "park": c.Park,
    "declare": c.Declare,
    "gone": c.ProcessesExited,
    "publish": c.Publish,
    "log": c.AppendLog,
    "suspect": c.Suspect,
    "diff": c.LiveDiff,
    "account": c.Account,
    "provider": c.Provider,
    "secrets": c.AskSecrets,
}
"""All that a worker says, by its name on the wire."""


class Crew(Protocol):
    """Blocking calls, from any thread.

    Each raises the MusterError that refuses it, and Unavailable where nobody answers: then whether it was
    written is unknown, and repeating it does no harm.
    """

    def register(self, command: Register) -> Registered: ...

    def claim(self, command: Claim, *, wait_s: float) -> Claimed:
        """Waits up to `wait_s` for something to do."""

    def heartbeat(self, command: Heartbeat, *, wait_s: float) -> HeartbeatAnswer:
        """Renews at once; the answer may be held for `wait_s` while there are no orders."""

    def report(self, command: AttemptCommand) -> Moved: ...

    def place(self, task_id: int) -> PlanPlace:
        """Of this task in its plan, as it is now."""

    def secrets(self, command: AskSecrets) -> SecretsGiven:
        """For the process of its agent alone."""

    def git_fetch(self, asked: GitFetch) -> GitPart: ...

    def git_send(self, part: GitSend) -> GitReceived: ...

    def git_publish(self, asked: GitPublish) -> GitMoved: ...

    def deregister(self, command: Deregister) -> None: ...
