"""Sets the limits of the process that it then becomes: `shim.py ERRORS_FD LIMITS LC_CTYPE EXECUTABLE ARGV...`.

Runs for a few milliseconds between fork and exec of an agent, instead of code in a forked copy of a worker that
has threads.  LIMITS is `name=value,...` with the kernel's names.  What fails is told on ERRORS_FD, which closes
without a word once the command runs.
"""

from __future__ import annotations

import os
import resource
import signal
import sys

CPU_GRACE_S = 5
"""From SIGXCPU, which a process may catch, to SIGKILL."""


def limit(name: str, value: int) -> None:
    """Lowers one limit.  A hard limit that is lower already stays: only root could raise it."""
    number = getattr(resource, f"RLIMIT_{name}", None)
    if number is None:
        return  # this system has no such limit; the worker's own look is left
    hard = resource.getrlimit(number)[1]
    most = value + CPU_GRACE_S if name == "CPU" else value
    if hard == resource.RLIM_INFINITY or most < hard:
        hard = most
    resource.setrlimit(number, (min(value, hard), hard))


def main(errors_fd: int, limits: str, ctype: str, executable: str, argv: list[str]) -> None:
    os.set_inheritable(errors_fd, False)
    os.environ.pop("LC_CTYPE", None)
    if ctype:
        os.environ["LC_CTYPE"] = ctype
    try:
        for pair in filter(None, limits.split(",")):
            name, _, value = pair.partition("=")
            limit(name, int(value))
        # Python ignores these two, and what is ignored stays so in the command.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        os.execv(executable, argv)  # noqa: S606
    except OSError as error:
        os.write(errors_fd, str(error.errno or 0).encode())
        os._exit(127)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4], sys.argv[5:])
