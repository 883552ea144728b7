from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from over_network import People, listening
from web_site import Site

from muster.model.access import Role
from muster.web.gate import Exposure


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path).up() as up:
        yield up


@pytest.fixture
def people(site: Site) -> People:
    found = People(site)
    found.token(Role.OWNER, member="root")
    return found


@pytest.fixture
def port(site: Site) -> Iterator[int]:
    """Where it listens over TCP, with tokens and without a limit."""
    with listening(site, Exposure(rate=0)) as found:
        yield found
