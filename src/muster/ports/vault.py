"""What keeps texts that the store is not to know."""

from __future__ import annotations

from typing import Protocol


class Vault(Protocol):
    def seal(self, text: str, purpose: str) -> str:
        """As the store may keep it.  It is opened for the same purpose only."""

    def unseal(self, sealed: str, purpose: str) -> str:
        """Raises StoreRefused where the key is another one, or the text was changed."""
