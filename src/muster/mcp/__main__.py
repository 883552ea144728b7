"""Started by its path, `python -I -S .../mcp/__main__.py FILE`: without site-packages, and compiled but once.

Each attempt has one, to which nobody talks most of the time.  So it waits with next to nothing imported, and
for each talk it forks the server, which ends when the CLI has been quiet for a while.
"""

import posix
import select
import sys

QUIET = 75
"""How the server ends where the CLI may go on later."""


def wait() -> int:
    """Its exit code."""
    ended = QUIET
    while ended == QUIET:
        select.select([0], [], [])
        answering = posix.fork()
        if not answering:
            sys.path.append(__file__.removesuffix("/muster/mcp/__main__.py"))
            from muster.mcp.server import main

            sys.exit(main(QUIET))
        ended = posix.waitstatus_to_exitcode(posix.waitpid(answering, 0)[1])
    return ended


if __name__ == "__main__":
    try:
        sys.exit(wait())
    except KeyboardInterrupt:  # the CLI is interrupted, and ends
        sys.exit(1)
