"""What the store keeps but does not know: texts that are sealed by a key which lies beside it.

XChaCha20-Poly1305 (libsodium).  What a text is for is sealed with it, so that none can be put in another's place.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import errno
import hashlib
import re
import secrets
import threading
from collections.abc import Sequence
from pathlib import Path

from muster.hosts.plain_files import replace_plain
from muster.model.errors import StoreFull, StoreRefused, Unavailable

KEY_BYTES = 32
_NONCE_BYTES = 24
_LINE = re.compile(rf"[0-9a-f]{{{2 * KEY_BYTES}}}")


class KeyVault:
    """As ports.vault.Vault.  The key file is made when the first text is sealed; its first line seals."""

    def __init__(self, key_file: Path) -> None:
        self._key_file = key_file
        self.sealing = asyncio.Lock()
        self._changing = threading.Lock()
        """Both the thread that commits and the one that answers may be the first to seal something."""

    def seal(self, text: str, purpose: str) -> str:
        from nacl.bindings import crypto_aead_xchacha20poly1305_ietf_encrypt as encrypt

        key, nonce = self._keys(make=True)[0], secrets.token_bytes(_NONCE_BYTES)
        sealed = nonce + encrypt(text.encode(), purpose.encode(), nonce, key)
        return f"{_name(key)}.{base64.b64encode(sealed).decode()}"

    def unseal(self, sealed: str, purpose: str) -> str:
        """Raises StoreRefused where the key is another one, or the text was changed."""
        from nacl.bindings import crypto_aead_xchacha20poly1305_ietf_decrypt as decrypt
        from nacl.exceptions import CryptoError

        name, _, data = sealed.partition(".")
        for key in self._keys():
            if _name(key) == name:
                try:
                    box = base64.b64decode(data, validate=True)
                    return decrypt(box[_NONCE_BYTES:], purpose.encode(), box[:_NONCE_BYTES], key).decode()
                except (CryptoError, binascii.Error, ValueError):
                    raise StoreRefused("what was sealed is damaged, or was changed", "set it anew") from None
        raise StoreRefused(
            f"{self._key_file} does not have the key that has sealed this",
            "restore it from a backup, or set what was sealed anew",
        )

    def keys_for(self, purpose: str, *, make: bool = False) -> list[bytes]:
        """As ports.vault.Vault."""
        about = purpose.encode()
        return [
            hashlib.blake2b(about, key=key, digest_size=KEY_BYTES, person=b"muster-derived").digest()
            for key in self._keys(make=make)
        ]

    def key_names(self) -> tuple[str, ...]:
        """That which seals first; made where there is none yet."""
        return tuple(map(_name, self._keys(make=True)))

    def take_new_key(self) -> None:
        with self._changing:
            self._keep([secrets.token_bytes(KEY_BYTES), *self._keys()])

    def forget_old_keys(self) -> None:
        with self._changing:
            self._keep(self._keys()[:1])

    def _keep(self, keys: Sequence[bytes]) -> Sequence[bytes]:
        """The whole file at once: whenever this is killed, there is the old one or the new one.

        Raises StoreFull, Unavailable.
        """
        try:
            replace_plain(self._key_file, "".join(f"{key.hex()}\n" for key in keys).encode(), lasting=True)
        except OSError as error:
            full = error.errno in {errno.ENOSPC, errno.EDQUOT}
            why = "the disk is full" if full else error.strerror
            raise (StoreFull if full else Unavailable)(
                f"{self._key_file} cannot be written, {why}; it stays as it was", "mend that, and do it again"
            ) from error
        return keys

    def _keys(self, *, make: bool = False) -> Sequence[bytes]:
        try:
            lines = self._key_file.read_text("ascii", errors="replace").split()
        except FileNotFoundError:
            return self._first() if make else ()
        except OSError as error:
            raise StoreRefused(
                f"{self._key_file} cannot be read: {error.strerror}", "restore it from a backup"
            ) from error
        if not lines or not all(map(_LINE.fullmatch, lines)):
            raise StoreRefused(
                f"{self._key_file} holds no key; nothing was changed", "restore it from a backup"
            )
        return [bytes.fromhex(line) for line in lines]

    def _first(self) -> Sequence[bytes]:
        with self._changing:
            if self._key_file.exists():
                return self._keys()
            return self._keep([secrets.token_bytes(KEY_BYTES)])


def _name(key: bytes) -> str:
    return hashlib.blake2b(key, digest_size=8, person=b"muster-vault").hexdigest()
