"""What the next attempt is given where no session can be resumed: all that is known of the work, in a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec.structs import replace

from muster.agents.inputs import write_private
from muster.agents.transcript import Reader, Transcript
from muster.hosts.plain_files import read_part
from muster.ports.agent import AttemptFolder, Did, Entry, Job

BEGINS = "goes on"
"""So begins what an attempt notes of how it took up the work before it."""
TAIL_BYTES = 512 << 10
TAIL_CHARS = 20_000
DIFF_CHARS = 60_000
TOLD_DIFF_CHARS = 20_000
"""In a prompt: the files are there, and some models read less at once than others."""
CHECKPOINT_CHARS = 20_000
ENTRY_CHARS = 1000


def handed_over(
    job: Job, folder: AttemptFolder, prompt: str, reader: Callable[[], Reader], *, reads_all: bool = True
) -> str:
    """Writes the file, and says where it is, or what is in it to an agent that may not read it there.

    Empty where there is nothing to hand over.  Raises OSError.
    `reader` is called only where something was printed: it takes the code of all kinds.
    """
    # Who was only refused has left nothing but what stands in the folder or a checkpoint.
    worked = job.epoch > 1 and not (job.refused and job.checkpoint is None and not job.diff)
    known = hand_over(job, folder, prompt, reader) if worked else ""
    if not known:
        return ""
    folder.path.mkdir(parents=True, exist_ok=True)
    write_private(folder.hand_over, known.encode(errors="replace"))
    if reads_all:
        return f"An earlier attempt has worked on this. Read {folder.hand_over.absolute()} first, then go on."
    short = hand_over(replace(job, diff=job.diff[:TOLD_DIFF_CHARS]), folder, "", reader)
    return f"An earlier attempt has worked on this. Go on from what it has left:\n\n{short}"


def begins_anew(folder: AttemptFolder) -> str:
    return f"{BEGINS} anew, with a hand-over: {folder.hand_over}"


def hand_over(job: Job, folder: AttemptFolder, prompt: str, reader: Callable[[], Reader]) -> str:
    """The text of the file; empty where no attempt has left anything."""
    said = _said(folder, job.epoch, reader)
    saved = "" if job.checkpoint is None else job.checkpoint.decode(errors="replace")[:CHECKPOINT_CHARS]
    if not (said or saved or job.diff):
        return ""
    parts = [
        ("The task", prompt),
        ("The last checkpoint", saved),
        ("What has been changed so far, against where the task began", job.diff[:DIFF_CHARS]),
        ("What earlier attempts have said and done last", said),
    ]
    return "\n".join(f"# {title}\n\n{text.strip()}\n" for title, text in parts if text.strip())


def _said(folder: AttemptFolder, epoch: int, reader: Callable[[], Reader]) -> str:
    """The end of the transcript of the newest attempt that has printed anything on this host."""
    for path in _earlier(folder.path, epoch):
        try:
            data = read_part(path / "stdout", TAIL_BYTES)
        except OSError:
            continue
        transcript = Transcript(reader(), from_middle=len(data) == TAIL_BYTES)
        lines = [_line(entry) for entry in (*transcript.feed(data), *transcript.end())]
        if lines:
            return "\n".join([f"(attempt {path.name})", "\n".join(lines)[-TAIL_CHARS:]])
    return ""


def _earlier(folder: Path, epoch: int) -> Iterator[Path]:
    try:
        names = [path.name for path in folder.parent.iterdir() if path.name.isdigit()]
    except OSError:
        return
    numbers = sorted(map(int, names), reverse=True)
    yield from (folder.parent / str(number) for number in numbers if number < epoch)


def _line(entry: Entry) -> str:
    text = entry.text if len(entry.text) <= ENTRY_CHARS else f"{entry.text[:ENTRY_CHARS]} ..."
    if entry.did is Did.TOOL:
        return f"> {entry.tool}: {text}"
    return f"{entry.did.value}: {text}" if entry.did in (Did.RESULT, Did.ERROR, Did.RETRY) else text
