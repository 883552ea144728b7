"""Started by its path, `python -I -S .../mcp/__main__.py FILE`: without site-packages, and compiled but once."""

import sys

if __name__ == "__main__":
    sys.path.append(__file__.removesuffix("/muster/mcp/__main__.py"))
    from muster.mcp.server import main

    sys.exit(main())
