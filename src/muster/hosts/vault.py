"""What the store keeps but does not know: texts that are sealed by a key which lies beside it, or which this
process was given.

XChaCha20-Poly1305 (libsodium).  What a text is for is sealed with it, so that none can be put in another's place.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import errno
import hashlib
import os
import re
import secrets
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from muster.hosts.plain_files import replace_plain
from muster.model.errors import BadConfig, Conflict, StoreFull, StoreRefused, Unavailable
from muster.model.secrets import VAULT_KEY

KEY_BYTES = 32
_NONCE_BYTES = 24
_NAME_BYTES = 8
_LINE = re.compile(rf"[0-9a-f]{{{2 * KEY_BYTES}}}")
_ELSEWHERE = re.compile(rf"{VAULT_KEY} ([0-9a-f]{{{2 * _NAME_BYTES}}})")
MAKE_KEY = "openssl rand -hex 32"


class _Kept(NamedTuple):
    """What the file says."""

    keys: Sequence[bytes] = ()
    elsewhere: str = ""
    """The name of the key that is given, and stands in no file."""


class KeyVault:
    """As ports.vault.Vault.  The key file is made when the first text is sealed; its first line seals.

    Where keys are given, the first of them seals, and the file has but its name: who is not given it then makes
    no other one.
    """

    def __init__(self, key_file: Path, given: Sequence[bytes] = ()) -> None:
        self._key_file, self._given = key_file, given
        self.sealing = asyncio.Lock()
        self._changing = threading.Lock()
        """Both the thread that commits and the one that answers may be the first to seal something."""

    def seal(self, text: str, purpose: str, by: str = "") -> str:
        from nacl.bindings import crypto_aead_xchacha20poly1305_ietf_encrypt as encrypt

        key, nonce = self._sealing(by), secrets.token_bytes(_NONCE_BYTES)
        sealed = nonce + encrypt(text.encode(), purpose.encode(), nonce, key)
        return f"{name_of(key)}.{base64.b64encode(sealed).decode()}"

    def _sealing(self, by: str) -> bytes:
        keys = self._keys(make=True)
        found = next((key for key in keys if not by or name_of(key) == by), None)
        if found is None:
            raise StoreRefused(
                f"{self._where()} does not have the key ({by}) that servers of this store seal by; nothing was "
                "changed",
                "copy it from another one of them",
            )
        return found

    def _where(self) -> str:
        return VAULT_KEY if self._given else str(self._key_file)

    def unseal(self, sealed: str, purpose: str) -> str:
        """Raises StoreRefused where the key is another one, or the text was changed."""
        from nacl.bindings import crypto_aead_xchacha20poly1305_ietf_decrypt as decrypt
        from nacl.exceptions import CryptoError

        name, _, data = sealed.partition(".")
        for key in self._keys():
            if name_of(key) == name:
                try:
                    box = base64.b64decode(data, validate=True)
                    return decrypt(box[_NONCE_BYTES:], purpose.encode(), box[:_NONCE_BYTES], key).decode()
                except (CryptoError, binascii.Error, ValueError):
                    raise StoreRefused("what was sealed is damaged, or was changed", "set it anew") from None
        raise StoreRefused(
            f"{self._where()} does not have the key that has sealed this",
            "restore it from a backup, or set what was sealed anew",
        )

    @property
    def given(self) -> bool:
        """Its keys stand in the environment."""
        return bool(self._given)

    def place(self) -> str:
        """Where the key stands that a copy of the store needs; empty: there is none yet.  Raises StoreRefused."""
        kept = self._kept()
        if self._given or kept.elsewhere:
            return VAULT_KEY
        return str(self._key_file) if kept.keys else ""

    def has_key_of(self, sealed: str) -> bool:
        try:
            return sealed.partition(".")[0] in map(name_of, self._keys())
        except StoreRefused:
            return False

    def why_closed(self) -> str:
        """Why it may lack a key."""
        try:
            if not self._keys():
                return f"{self._key_file} is not there, and {VAULT_KEY} is not set"
        except StoreRefused as error:
            return error.message
        return f"{self._where()} does not have their key"

    def name(self) -> str:
        """Of the key that seals; empty where there is none yet.  Raises StoreRefused."""
        keys = self._keys()
        return name_of(keys[0]) if keys else ""

    def check(self) -> None:
        """As ports.vault.Vault.  A file that is damaged is told when it is needed."""
        with suppress(StoreRefused):
            if wrong := self._wrong(self._kept()):
                raise BadConfig(*wrong)

    def keys_for(self, purpose: str, *, make: bool = False) -> list[bytes]:
        """As ports.vault.Vault."""
        about = purpose.encode()
        return [
            hashlib.blake2b(about, key=key, digest_size=KEY_BYTES, person=b"muster-derived").digest()
            for key in self._keys(make=make)
        ]

    def key_names(self) -> tuple[str, ...]:
        """In their order: the newest first.  One is made where there is none yet."""
        return tuple(map(name_of, self._own(make=True)))

    def take_new_key(self) -> None:
        """It is the first one from now on; what older ones have sealed can still be opened."""
        with self._changing:
            keys = self._own()
            if not self._given:
                self._keep([secrets.token_bytes(KEY_BYTES), *keys])
            elif len(keys) == 1:
                raise Conflict(
                    f"{VAULT_KEY} has no newer key, and only you can give it one; nothing was changed",
                    f'start the server again with {VAULT_KEY}="NEW OLD", where NEW is a new one ({MAKE_KEY}) and '
                    "OLD the present one; then: muster secrets rotate",
                )

    def forget_old_keys(self) -> str:
        """Only what the newest one has sealed can be opened from now on.  What a person has to do for that, or
        nothing."""
        with self._changing:
            keys = self._own()
            self._keep(keys[:1])
        if len(keys) > 1 and self._given:
            return f"take all keys but the first out of {VAULT_KEY}: they open nothing any more"
        return ""

    def _keep(self, keys: Sequence[bytes]) -> Sequence[bytes]:
        """The whole file at once: whenever this is killed, there is the old one or the new one.

        Raises StoreFull, Unavailable.
        """
        text = "".join(f"{key.hex()}\n" for key in keys)
        if self._given:
            text = f"{VAULT_KEY} {name_of(keys[0])}\n"
        try:
            replace_plain(self._key_file, text.encode(), lasting=True)
        except OSError as error:
            full = error.errno in {errno.ENOSPC, errno.EDQUOT}
            why = "the disk is full" if full else error.strerror
            raise (StoreFull if full else Unavailable)(
                f"{self._key_file} cannot be written, {why}; it stays as it was", "mend that, and do it again"
            ) from error
        return keys

    def _keys(self, *, make: bool = False) -> Sequence[bytes]:
        """That which seals first."""
        return self._own(make=make)

    def _own(self, *, make: bool = False) -> Sequence[bytes]:
        """As the file or the environment has them."""
        kept = self._kept()
        if wrong := self._wrong(kept):
            raise StoreRefused(*wrong)
        if make and kept == _Kept():
            return self._first()
        return self._given or kept.keys

    def _wrong(self, kept: _Kept) -> tuple[str, str] | None:
        """What is wrong with what is given, beside what the folder has; and the fix."""
        given = [name_of(key) for key in self._given]
        if kept.elsewhere and not given:
            return (
                f"{VAULT_KEY} is not set, and has the key ({kept.elsewhere}) of what is sealed in this folder; "
                "nothing was changed",
                f"set {VAULT_KEY}, and do it again",
            )
        if kept.elsewhere and kept.elsewhere not in given:
            return (
                f"{VAULT_KEY} has another key ({given[0]}) than the one ({kept.elsewhere}) that has sealed what "
                "is in this folder; nothing was changed",
                f"put that one back into {VAULT_KEY}, behind a newer one if there is to be one",
            )
        lacking = next((name for name in map(name_of, kept.keys) if given and name not in given), "")
        if lacking:
            return (
                f"{VAULT_KEY} and {self._key_file} have different keys; nothing was changed, and the file stays "
                "as it is",
                f"unset {VAULT_KEY}; or put the file's key ({lacking}) behind the others in {VAULT_KEY}, start "
                "again, and run: muster secrets rotate",
            )
        return None

    def _kept(self) -> _Kept:
        try:
            text = self._key_file.read_text("ascii", errors="replace")
        except FileNotFoundError:
            return _Kept()
        except OSError as error:
            raise StoreRefused(
                f"{self._key_file} cannot be read: {error.strerror}", "restore it from a backup"
            ) from error
        if elsewhere := _ELSEWHERE.fullmatch(text.strip()):
            return _Kept(elsewhere=elsewhere[1])
        lines = text.split()
        if not lines or not all(map(_LINE.fullmatch, lines)):
            raise StoreRefused(
                f"{self._key_file} holds no key; nothing was changed", "restore it from a backup"
            )
        return _Kept([bytes.fromhex(line) for line in lines])

    def _first(self) -> Sequence[bytes]:
        with self._changing:
            if self._key_file.exists():
                return self._own()
            return self._keep(self._given or [secrets.token_bytes(KEY_BYTES)])


def given_keys() -> Sequence[bytes]:
    """Those of the environment, in their order.  Raises BadConfig for what is no key, and never repeats it."""
    words = os.environ.get(VAULT_KEY, "").split()
    if not all(_LINE.fullmatch(word.lower()) for word in words):
        raise BadConfig(
            f"{VAULT_KEY} is no key; nothing was changed",
            f"64 hexadecimal digits, as of {MAKE_KEY}; of several, with a space between, the first one seals",
        )
    return [bytes.fromhex(word) for word in words]


def name_of(key: bytes) -> str:
    return hashlib.blake2b(key, digest_size=_NAME_BYTES, person=b"muster-vault").hexdigest()
