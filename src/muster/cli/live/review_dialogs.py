"""What is written of work that was looked at: a comment on a line, and the note that all of them make.  Pure."""

from __future__ import annotations

from muster.cli.live.dialog import Dialog, dialog_of
from muster.cli.live.review import Review
from muster.cli.output import ref_of, shell_word
from muster.model.forms import FormField, seen_of_merge
from muster.model.json_value import Json
from muster.model.reviews import review_note
from muster.model.wording import counted

COMMENT = "comment"
LEAVE = "leave"


def sending_back(action: str, row: Json, tag: str, review: Review | None) -> Dialog:
    """Work goes back to its agent with a note, of which the comments on its lines are a part."""
    epoch = review.work.of[1] if review is not None else row["epoch"]
    remarks = review.said() if review is not None else []
    says = [row["why"], *(f"{one.where}: {one.text}" for one in remarks)]
    return Dialog(
        title=f"Send back: {ref_of(row)}",
        action=action,
        row=row,
        fields=(FormField("words", "A note for its agent", long=True),),
        says=says,
        label="Send back",
        sure=False,
        needs=frozenset() if remarks else frozenset({"words"}),
        body=lambda written: {"note": review_note(f"attempt {epoch}", written["words"].strip(), remarks)},
        tag=tag,
        at=0,
        work=review.work if remarks and review is not None else None,
    )


def merging(coming: Json, row: Json, refused: str = "") -> Dialog | str:
    """What is asked before a plan's branch is merged, or why there is nothing to ask; again, where that was
    `refused`."""
    into, branch, name = coming["into"] or "your commit", coming["branch"], shell_word(row["key"])
    if not coming["commits"]:
        return f"there is nothing to merge: {into} has all of {branch}"
    if coming["conflicts"]:
        return f"there would be conflicts in {', '.join(coming['conflicts'])}: muster plan merge {name}"
    brought = f"{counted(len(coming['commits']), 'commit')}, {counted(len(coming['files']), 'file')}"
    told = [f"{one['commit'][:9]} {one['task'] or 'no task'}: {one['subject']}" for one in coming["commits"]]
    made = dialog_of("merge", row)
    made.says = tuple(filter(None, (refused, f"{brought} from {branch} into {into}:", *told)))
    made.body = lambda _: seen_of_merge(coming)
    return made


def commenting(review: Review, place: tuple[int, str], row: Json) -> Dialog:
    """On one line; empty takes it away."""
    made = Dialog(
        title=f"Comment on {review.where(place)}",
        action=COMMENT,
        row=row,
        fields=(FormField("text", "Comment", long=True),),
        label="Comment",
        sure=False,
        at=0,
    )
    made.lines["text"].write(review.remarks.get(place, ""))
    return made


def leaving(unsent: str) -> Dialog:
    """Before the watch is left with comments that nobody has got, as a browser asks."""
    watch = {"id": "watch", "kind": "watch", "plan": "", "key": "muster watch"}
    return Dialog(title="Leave", action=LEAVE, row=watch, fields=(), says=(unsent,), label="Leave")
