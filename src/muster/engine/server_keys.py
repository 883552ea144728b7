"""The key that all servers of a store seal by.

The store has its name.  Each server has the key itself, in a file or in its environment, and may have others:
a newer one that is to take over, an older one that still opens something.  Which of them are up, and what they
have, is known from their asking for the coordinator's place.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

import msgspec
from msgspec import Struct

from muster.engine.view import View
from muster.engine.views import Views
from muster.model.answers import Done, Joined, KeyTaken, SealedDropped
from muster.model.commands import GiveUpKeys, Join, Lead, ResetKey, TakeKey
from muster.model.errors import Conflict, StoreRefused
from muster.model.secrets import VAULT_KEY
from muster.ports.locks import CREW, TERM, VAULT, VAULT_SHARED, locks
from muster.ports.store import Transaction, Tx

KEYS = "keys"
_SERVERS, _GIVEN_UP = "servers", "keys given up"
HEARD_MS = 20_000
"""Who has asked within this time is up, as far as can be known."""
_NOTED_MS = 5_000
"""So often that somebody is there is written anew."""
_GIVEN_UP_MAX = 20


class _Server(Struct, frozen=True):
    named: str
    place: str
    at_ms: int
    keys: tuple[str, ...]
    wrong_ms: int = 0
    """As in Lead."""


def keys_of(seal_key: str, vault_key: str, copy: str = "") -> str:
    """What a store keeps of its servers' keys; with the name of the copy that it is, until one has joined."""
    return " ".join(filter(None, [seal_key, vault_key, copy]))


async def sealing_key(tx: Tx | Transaction) -> str:
    """Its name, as it stays until this transaction ends; empty where no servers share the store."""
    await tx.lock(VAULT_SHARED)
    known = await tx.store_meta(KEYS)
    return known.split()[1] if known else ""


async def given_up(tx: Transaction) -> tuple[str, ...]:
    return tuple((await tx.store_meta(_GIVEN_UP) or "").split())


async def note_server(tx: Transaction, command: Lead, now_ms: int) -> dict[str, _Server]:
    """That it is up, which keys it has and how wrong its clock is; or that it ends.  Others that are up."""
    known = await _servers(tx)
    before = known.pop(command.server, None)
    living = {
        name: one
        for name, one in known.items()
        if _up(one, now_ms) and (not one.place or one.place != command.place)
    }
    others = dict(living)
    if not command.give_up:
        if before and before.keys == command.keys and 0 <= now_ms - before.at_ms < _NOTED_MS:
            return others
        living[command.server] = _Server(command.named, command.place, now_ms, command.keys, command.wrong_ms)
    elif before is None:
        return others
    await tx.set_store_meta(_SERVERS, msgspec.json.encode(living).decode())
    return others


def wrong_clocks(others: Iterable[_Server], command: Lead) -> dict[str, int]:
    """By the names of servers, with that of the one that asks."""
    every = [*((one.named, one.wrong_ms) for one in others), (command.named, command.wrong_ms)]
    return {named: wrong_ms for named, wrong_ms in every if wrong_ms}


async def _servers(tx: Transaction) -> dict[str, _Server]:
    told = await tx.store_meta(_SERVERS)
    return msgspec.json.decode(told, type=dict[str, _Server]) if told else {}


def _up(server: _Server, now_ms: int) -> bool:
    return abs(now_ms - server.at_ms) < HEARD_MS


async def join(views: Views, command: Join, begin: Callable[[View], Awaitable[None]]) -> Joined:
    """`begin` is for each workspace of a store that was copied from a folder, with its first server.

    Raises StoreRefused for a server with keys of its own.
    """
    tx = views.tx
    await tx.lock(locks(TERM))
    known = await tx.store_meta(KEYS)
    if known is None:
        await tx.set_store_meta(KEYS, keys_of(command.seal_key, command.vault_keys[0]))
        return Joined(first=True, vault_key=command.vault_keys[0])
    seal_key, vault_key, *copy = known.split()
    _refuse_other(command, seal_key, vault_key)
    if copy:
        await tx.set_store_meta(KEYS, keys_of(seal_key, vault_key))
        for view in await views.all():
            await view.tx.lock(locks(CREW))
            await begin(view)
    return Joined(first=bool(copy), vault_key=vault_key)


def _refuse_other(command: Join, seal_key: str, vault_key: str) -> None:
    has_it = vault_key in command.vault_keys
    wrong = [
        name
        for name, fits in (
            (".muster/key", seal_key == command.seal_key),
            (".muster/vault.key", command.keys_given or has_it),
        )
        if not fits
    ]
    if wrong:
        files = " and ".join(wrong)
        lost = "" if has_it or command.keys_given else "; if no server has it any more: muster secrets reset"
        raise StoreRefused(
            f"{files} of this folder: other servers of this store have another one; nothing was started",
            f"copy {files} of another server to this folder, and start again{lost}",
        )
    if not has_it:
        raise StoreRefused(
            f"{VAULT_KEY}: other servers of this store seal with another key; nothing was started",
            f"set {VAULT_KEY} as it is set for the others, and start again; if none has it any more: "
            "muster secrets reset",
        )


async def take_key(views: Views, command: TakeKey) -> KeyTaken:
    """The first one of them seals from now on, once every server that is up has it.

    Whoever has sealed something by another one has written it before.
    """
    tx = views.tx
    await tx.lock(locks(TERM))
    await tx.lock(locks(VAULT))
    seal_key, vault_key, *copy = (await tx.store_meta(KEYS) or "").split()
    new, now_ms = command.keys[0], views.now.mono_ms
    lacking = tuple(
        sorted(
            server.named
            for name, server in (await _servers(tx)).items()
            if name != command.server and _up(server, now_ms) and new not in server.keys
        )
    )
    if not lacking and new != vault_key:
        await tx.set_store_meta(KEYS, keys_of(seal_key, new, *copy))
    return KeyTaken(key=vault_key if lacking else new, lacking=lacking)


async def give_up_keys(views: Views, command: GiveUpKeys) -> Done:
    """Nothing is sealed by them any more: servers forget them as they hear of it."""
    tx = views.tx
    await tx.lock(locks(TERM))
    present = await sealing_key(tx)
    known = [*await given_up(tx), *(name for name in command.keys if name != present)]
    newest = list(dict.fromkeys(reversed(known)))[:_GIVEN_UP_MAX]
    await tx.set_store_meta(_GIVEN_UP, " ".join(reversed(newest)))
    return Done()


async def reset_key(
    views: Views, command: ResetKey, drop: Callable[[View, str], Awaitable[SealedDropped]]
) -> SealedDropped:
    """A store whose key is lost goes on with another one; `drop` is for what is sealed of each workspace.

    Raises Conflict, StoreRefused.
    """
    tx = views.tx
    await tx.lock(locks(TERM))
    await tx.lock(locks(VAULT))
    known = await tx.store_meta(KEYS)
    if known is None:
        raise Conflict(
            "no server has begun with this store; nothing was changed", "muster serve begins with it"
        )
    seal_key, vault_key, *copy = known.split()
    up = sorted(one.named for one in (await _servers(tx)).values() if _up(one, views.now.mono_ms))
    if up:
        raise Conflict(
            f"{', '.join(up)} is up, or was within the last {HEARD_MS // 1000} s, and has the key; nothing was "
            "changed",
            "copy .muster/vault.key (or MUSTER_VAULT_KEY) of that server to this folder; where it is gone "
            "there as well, stop it and try again",
        )
    if vault_key in command.keys:
        raise Conflict("this folder has the key; nothing was changed", "muster serve")
    if seal_key != command.seal_key:
        raise StoreRefused(
            ".muster/key of this folder is not that of this store; nothing was changed",
            "copy .muster/key of one of its servers to this folder: without it the audit proves nothing",
        )
    await tx.set_store_meta(KEYS, keys_of(seal_key, command.keys[0], *copy))
    every = [await drop(view, command.actor) for view in await views.all()]
    return SealedDropped(
        secrets=tuple(name for one in every for name in one.secrets),
        webhooks=tuple(url for one in every for url in one.webhooks),
    )
