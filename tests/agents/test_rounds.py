"""No program outlives its attempt, however it fights and however it is ended."""

from __future__ import annotations

from menagerie import FIGHTERS
from zoo_rounds import play


def test_no_process_is_left(zoo, subreaper):
    """Each fighter twice; `./run contain` plays 200 rounds, each of them in each way."""
    assert play(zoo, 2 * len(FIGHTERS)) == {}
