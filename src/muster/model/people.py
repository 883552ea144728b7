"""Whose word an event is, where it is not a person's own."""

from __future__ import annotations

ATTEMPT = "attempt:"
"""The actor of what comes from inside an attempt begins with this, whatever its body says."""
AGENT = "agent:"
"""The actor of what an agent that serves itself says begins with this."""
THE_FILE = "the file"
"""The actor of a box that a person has ticked."""
