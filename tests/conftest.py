"""What all tests share: how long a search for counterexamples may take, and that nobody is at home.

A developer's own settings change no result: not those in `MUSTER_...` variables, which are gone before any test
is read, and not those in files, since HOME is an empty folder for this process and for all that it starts.
"""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings

settings.register_profile("long", max_examples=2_000, stateful_step_count=150, deadline=None, print_blob=True)

# Where programs that tests use were installed is no setting of Muster's.
os.environ.setdefault("XDG_CACHE_HOME", str(Path.home() / ".cache"))
for name in [name for name in os.environ if name.startswith("MUSTER_")]:
    del os.environ[name]
_home = TemporaryDirectory(prefix="muster-tests-home-")
os.environ["HOME"] = _home.name
os.environ.pop("XDG_CONFIG_HOME", None)


def pytest_unconfigure(config: pytest.Config) -> None:
    _home.cleanup()
