"""What an attempt's process tree may use of its host."""

from __future__ import annotations

from msgspec import Struct

OUTPUT_BYTES = 1 << 30
STALL_AFTER_S = 600.0


class Limits(Struct, frozen=True, kw_only=True):
    """None is no limit.  The first three are kept by the kernel for each process, and for the whole tree by its
    worker, which looks once a second."""

    memory_bytes: int | None = None
    """Private memory: what a tree alone has to answer for."""
    cpu_s: float | None = None
    """Seconds of processor time."""
    processes: int | None = None
    files: int | None = None
    """Open files of one process.  Kept by the kernel."""
    file_bytes: int | None = None
    """Size of any one file that is written.  Kept by the kernel."""
    output_bytes: int | None = OUTPUT_BYTES
    """What the attempt prints, stdout and stderr together."""
    stall_after_s: float | None = STALL_AFTER_S
    """Without any sign of progress for so long it is suspected to hang."""

    @property
    def in_kernel(self) -> bool:
        """Whether any of them has to be set in the process before it begins."""
        return (self.memory_bytes, self.cpu_s, self.processes, self.files, self.file_bytes) != (None,) * 5
