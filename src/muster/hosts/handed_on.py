"""What the programs that Muster starts are handed on of its own environment."""

from __future__ import annotations

import os

from muster.model.secrets import VAULT_KEY


def handed_on() -> dict[str, str]:
    """For those that are not Muster itself."""
    return {name: value for name, value in os.environ.items() if name != VAULT_KEY}
