"""The vault of a server that shares its store: the store says which of the keys seals."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from contextlib import suppress

from muster.hosts.vault import KeyVault, name_of
from muster.model.errors import MusterError, StoreRefused

log = logging.getLogger(__name__)


class SharedVault(KeyVault):
    sealing_by = ""
    """The name of that key, as far as this server has heard."""
    _lacks = ""
    """That of the one that it was last told to lack."""

    def _keys(self, *, make: bool = False) -> Sequence[bytes]:
        return sorted(self._own(make=make), key=lambda key: name_of(key) != self.sealing_by)

    def names(self) -> tuple[str, ...]:
        """As `key_names`; none where they cannot be read now."""
        try:
            return self.key_names()
        except MusterError:
            return ()

    def hear(self, sealing_by: str, given_up: Collection[str]) -> None:
        """What the store has: keys that it has given up go, once it is not one of them that seals."""
        self.sealing_by = sealing_by
        with suppress(StoreRefused):
            keys = {name_of(key): key for key in self._own()}
            if sealing_by not in keys:
                self._tell_lacking(sealing_by)
                return
            self._lacks = ""
            left = [key for name, key in keys.items() if name == sealing_by or name not in given_up]
            try:
                self._forget_but(left, keys[sealing_by])
            except MusterError as error:
                log.warning("keys that are given up stay: %s", error)

    def _tell_lacking(self, name: str) -> None:
        """Once, not each time."""
        if name and name != self._lacks:
            log.warning(
                "%s does not have the key (%s) that the servers of this store seal by: copy it from another one",
                self._where(),
                name,
            )
        self._lacks = name

    def _forget_but(self, left: Sequence[bytes], sealing: bytes) -> None:
        """Where keys are given, the file has the name of the one that seals, and nothing else of them."""
        with self._changing:
            kept = self._kept()
            if kept.elsewhere and kept.elsewhere != name_of(sealing):
                self._keep([sealing])
            elif kept.keys and not self._given and len(left) < len(kept.keys):
                self._keep(left)
