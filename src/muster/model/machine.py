"""The one function that decides every move of a task.

`decide(task, facts, command, now)` is pure: the same arguments give the same Decision.  A refused command
raises a MusterError and nothing is to be written.  Both stores, the API's 409s and the simulator use this one
function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from muster.model import commands as c
from muster.model.edits import Edit, RenameBox
from muster.model.moves import editing, ending, manual, publishing, steering, waiting, working
from muster.model.moves.decision import Decision, Facts, refuse_changed
from muster.model.task import Now, Task

_Decider = Callable[[Task, Facts, Any, Now], Decision]
_DECIDERS: dict[type[c.Command], _Decider] = {
    c.Grant: working.grant,
    c.Start: working.start,
    c.Renew: working.renew,
    c.Progress: working.progress,
    c.SaveCheckpoint: working.save_checkpoint,
    c.AddArtifact: working.add_artifact,
    c.Declare: working.declare,
    c.Suspect: working.suspect,
    c.LiveDiff: working.live_diff,
    c.Publish: publishing.publish,
    c.Published: publishing.published,
    c.Accept: publishing.accept,
    c.AppendLog: working.append_log,
    c.Account: working.account,
    c.Notify: working.notify,
    c.Ask: ending.ask,
    c.Park: ending.park,
    c.Readopt: ending.readopt,
    c.Extend: manual.extend,
    c.Complete: ending.complete,
    c.Fail: ending.fail,
    c.Release: ending.release,
    c.RequestStop: ending.request_stop,
    c.Reap: ending.reap,
    c.ProcessesExited: ending.gone,
    c.Promote: waiting.promote,
    c.Cancel: waiting.cancel,
    c.Retry: waiting.retry,
    c.CompleteByPerson: waiting.complete_by_person,
    c.Unblock: waiting.unblock,
    c.CloseGroup: waiting.close_group,
    c.Pause: steering.pause,
    c.Resume: steering.resume,
    c.AnswerQuestion: steering.answer,
    c.Tell: steering.tell,
    c.Transfer: steering.transfer,
    c.DropPin: steering.drop_pin,
    c.Expire: steering.expire,
    c.Overdue: working.overdue,
    c.Repair: editing.mend,
    c.Skip: steering.skip,
    c.Depend: steering.depend,
    c.Archive: steering.archive,
    Edit: editing.edit,
    RenameBox: editing.rename_box,
}

TASK_COMMANDS = frozenset(_DECIDERS)


def decide(task: Task, facts: Facts, command: c.Command, now: Now) -> Decision:
    """What `command` does to `task`.

    Raises StaleEpoch, StoreRewound, IllegalMove, PreconditionFailed or BadInput where it is refused; nothing is
    written then.
    """
    if isinstance(command, c.PersonCommand):
        refuse_changed(task, command.if_seen)
    decision = _DECIDERS[type(command)](task, facts, command, now)
    if not decision.task.is_group or not decision.task.all_below_done:
        return decision
    return replace(decision, follow_ups=(*decision.follow_ups, c.CloseGroup(task_id=task.id)))
