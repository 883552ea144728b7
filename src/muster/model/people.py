"""Whose word an event is, where it is not a person's own."""

from __future__ import annotations

ATTEMPT = "attempt:"
"""The actor of what comes from inside an attempt begins with this, whatever its body says."""
THE_FILE = "the file"
"""The actor of a box that a person has ticked."""
