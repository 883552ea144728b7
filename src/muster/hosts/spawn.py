"""The start of a command, with its limits set in it before its first instruction."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Mapping

from muster.hosts import shim
from muster.hosts.process_table import user_threads
from muster.model.limits import Limits
from muster.ports.agent import Launch

_FORK_ROOM = 1000
_SAID_BYTES = 32


def start_command(
    launch: Launch, executable: str, env: Mapping[str, str], files: tuple[int, int, int]
) -> subprocess.Popen[bytes]:
    """`files` are stdin, stdout and stderr.

    Raises OSError where the command cannot be executed, with limits or without, and ValueError for a NUL.
    """
    if not launch.limits.in_kernel:
        return _popen(list(launch.argv), executable, launch, env, files)
    reader, writer = os.pipe()
    try:
        try:
            # A program of its own sets them: after a fork in a process with threads hardly any code is safe.
            argv = [sys.executable, "-I", "-S", shim.__file__, str(writer), _kernel_limits(launch.limits)]
            # Python itself may change this variable when it starts; the command is to see it as it was.
            argv += [env.get("LC_CTYPE", ""), executable, *launch.argv]
            popen = _popen(argv, sys.executable, launch, env, files, keep=(writer,))
        finally:
            os.close(writer)
        said = os.read(reader, _SAID_BYTES)
    finally:
        os.close(reader)
    if said:
        popen.wait()
        raise OSError(int(said), os.strerror(int(said)))
    return popen


def _popen(
    argv: list[str],
    executable: str,
    launch: Launch,
    env: Mapping[str, str],
    files: tuple[int, int, int],
    *,
    keep: tuple[int, ...] = (),
) -> subprocess.Popen[bytes]:
    stdin, out, err = files
    return subprocess.Popen(
        argv,
        executable=executable,
        env=env,
        cwd=launch.cwd,
        stdin=stdin,
        stdout=out,
        stderr=err,
        start_new_session=True,
        close_fds=True,
        pass_fds=keep,
    )


def _kernel_limits(limits: Limits) -> str:
    wanted = {
        "DATA": limits.memory_bytes,
        "CPU": None if limits.cpu_s is None else math.ceil(limits.cpu_s),
        "NOFILE": limits.files,
        "FSIZE": limits.file_bytes,
        # The kernel counts all threads of the user, ours and others': only a brake for what forks without end.
        "NPROC": None if limits.processes is None else user_threads() + max(_FORK_ROOM, 4 * limits.processes),
    }
    return ",".join(f"{name}={value}" for name, value in wanted.items() if value is not None)
