"""Read by Python at its start, from PYTHONPATH: an owner gets the points at which a test lets it die."""

import os
import sys
from pathlib import Path

if "muster.app.owner" in sys.orig_argv and "CRASH_POINT_FILE" in os.environ:
    from failpoint import install

    install(Path(os.environ["CRASH_POINT_FILE"]))
