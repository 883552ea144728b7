"""What all tests share: how long a search for counterexamples may take."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("long", max_examples=2_000, stateful_step_count=150, deadline=None, print_blob=True)
