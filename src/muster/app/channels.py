"""The channels of settings, with what each needs to tell people."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from muster.config.channels import ChannelConfig
from muster.config.settings import Config
from muster.hosts.detached_call import detached_call
from muster.model.errors import NotAllowed, StoreRefused
from muster.model.notify import ChannelPlan
from muster.model.rows import DEFAULT_WORKSPACE
from muster.model.secrets import key_lost, not_set, secret_purpose
from muster.ports.hooks import Channel
from muster.ports.runtime import Clock
from muster.ports.store import Reads
from muster.ports.vault import Vault

if TYPE_CHECKING:
    from muster.outbound.webhook_post import WebhookPost


def plans_of(config: Config) -> tuple[ChannelPlan, ...]:
    return tuple(_plan(channel) for channel in config.channels)


def _plan(channel: ChannelConfig) -> ChannelPlan:
    return ChannelPlan(
        name=channel.name,
        kind=channel.kind,
        to=channel.shown,
        tells=channel.tell,
        digest_s=channel.digest_s,
        quiet="" if channel.quiet is None else str(channel.quiet),
        time_zone=channel.time_zone,
    )


def channels_of(config: Config, root: Path, clock: Clock, reads: Reads, vault: Vault) -> list[Channel]:
    """`root` is the folder that files of secrets are named from."""
    return [_channel(one, root, clock, reads, vault) for one in config.channels]


def _channel(config: ChannelConfig, root: Path, clock: Clock, reads: Reads, vault: Vault) -> Channel:
    # Only who tells somebody needs what it takes.
    from muster.outbound.channels import Teller, delivery_of

    def wall_ms() -> int:
        return clock.now().wall_ms

    deliver = delivery_of(config, post=partial(_post, config), in_thread=detached_call, wall_ms=wall_ms)
    zone = ZoneInfo(config.time_zone) if config.time_zone else None
    return Channel(_plan(config), config.quiet, zone, Teller(deliver, _secret_of(config, root, reads, vault)))


def _post(config: ChannelConfig) -> WebhookPost:
    from muster.outbound.webhook_post import WebhookPost

    allow = f"channels.{config.name}.private = true"
    return WebhookPost(private=config.private, in_thread=detached_call, allow=allow)


def _secret_of(config: ChannelConfig, root: Path, reads: Reads, vault: Vault) -> Callable[[], Awaitable[str]]:
    """Looked up for each try: it may have been set, or changed, meanwhile."""
    name = config.secret

    async def nothing() -> str:
        return ""

    async def in_file() -> str:
        path = root / config.secret_file
        try:
            text: str = await detached_call(path.read_text, "utf-8")
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "it is no text"
            raise NotAllowed(f"its secret cannot be read from {path}: {why}") from None
        return text.strip()

    async def sealed() -> str:
        found = (await reads.of(DEFAULT_WORKSPACE).sealed_secrets()).get(name)
        if found is None:
            raise NotAllowed(not_set(name))
        try:
            return vault.unseal(found, secret_purpose(DEFAULT_WORKSPACE, name))
        except StoreRefused:
            raise NotAllowed(key_lost(name)) from None

    return sealed if name else in_file if config.secret_file else nothing
