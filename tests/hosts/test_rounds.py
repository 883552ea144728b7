"""No program outlives its attempt, however it fights and however it is ended."""

from __future__ import annotations

from hostile_programs import FIGHTERS
from hostile_rounds import play


def test_no_process_is_left(hostiles, subreaper):
    """Each fighter twice; `./run contain` plays 200 rounds, each of them in each way."""
    assert play(hostiles, 2 * len(FIGHTERS)) == {}
