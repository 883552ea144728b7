"""Fixtures for tests on real processes of this host."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from hostile_fixtures import folder, hostiles, subreaper

__all__ = ["folder", "hostiles", "subreaper"]
