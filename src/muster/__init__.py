"""Muster runs a crew of AI agents on a plan, and never loses a task."""

__version__ = "0.1.0"
