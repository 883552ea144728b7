"""Stands beside a command that runs agents outside of any crew, and cleans up behind it where it is killed.

`python -m muster.hosts.guard MARK FOLDER`: kills what carries the mark and removes the folder, unless standard
input says before its end that nothing is left to do.
"""

from __future__ import annotations

import shutil
import sys

from muster.hosts.local_host import LocalHost


def main() -> None:
    mark, folder = sys.argv[1:]
    if not sys.stdin.buffer.read():
        LocalHost().kill_marked([mark])
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
