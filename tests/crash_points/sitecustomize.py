"""Read by Python at its start, from PYTHONPATH: an owner gets the points at which a test lets it die."""

import os
from pathlib import Path

from owner_hook import in_owner

if "CRASH_POINT_FILE" in os.environ:
    from failpoint import install

    in_owner(lambda _: install(Path(os.environ["CRASH_POINT_FILE"])))
