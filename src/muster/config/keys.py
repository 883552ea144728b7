"""Every key of `muster.toml` and its value in a Config, for `muster config show` and the documentation."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import Any, NamedTuple

from muster.config.channels import ChannelConfig
from muster.config.settings import LIMITS, SECTIONS, AgentConfig, Config
from muster.config.tables import KeySpec
from muster.config.values import (
    read_count,
    read_count_or_zero,
    read_dollars,
    read_duration,
    read_files,
    read_flag,
    read_interval,
    read_size,
    read_texts,
)
from muster.model.durations import duration_text

_NO_TEXTS = (
    *(read_count, read_count_or_zero, read_dollars, read_duration, read_files, read_flag, read_interval),
    read_size,
)
"""Those that know numbers and flags."""


class Key(NamedTuple):
    path: str
    field: str
    """Where it is kept, with dots."""
    setting: KeySpec

    @property
    def says(self) -> str:
        return self.setting.says

    @property
    def takes(self) -> tuple[type, ...]:
        """What TOML may have made of its value in the environment, where all values are texts."""
        if self.setting.read in _NO_TEXTS:
            return (str, int, float)
        return (list,) if self.setting.read is read_texts else (str,)

    def value(self, settings: Config | AgentConfig | ChannelConfig) -> Any:
        """As it would be written in TOML; None where nothing is set."""
        value = attrgetter(self.field)(settings)
        if self.setting.show is not None:
            return self.setting.show(value)
        if self.setting.read in (read_duration, read_interval) and value is not None:
            return duration_text(value)
        if isinstance(value, tuple | Mapping | str):
            listed = list(value) if isinstance(value, tuple) else value
            return (sorted(value) if isinstance(value, Mapping) else listed) or None
        return value


def _keys(named: Mapping[str, KeySpec], table: str = "") -> tuple[Key, ...]:
    return tuple(Key(table + one.name, table + name, one) for name, one in named.items())


KEYS: tuple[Key, ...] = (
    *_keys(Config.settings),
    *(key for name, section in SECTIONS.items() for key in _keys(section.settings, f"{name}.")),
)
AGENT_KEYS: tuple[Key, ...] = (*_keys(AgentConfig.settings), *_keys(LIMITS, "limits."))
"""Of `[agents.NAME]`."""
CHANNEL_KEYS: tuple[Key, ...] = _keys(ChannelConfig.settings)
"""Of `[channels.NAME]`."""


OF_ALL_SERVERS = ("agent", "task.", "health.", "budget.", "retention.", "limits.", "webhooks.", "channels.")
OF_ALL_AGENTS = (".slots", ".pool", ".heartbeat", ".prompt", ".coordinator_enabled")
"""What servers of one store have to agree on: who is asked decides by its own."""


def shared_settings(config: Config) -> dict[str, str]:
    """Those, as they would be written in TOML."""
    return {
        key: json.dumps(value)
        for key, value in settings(config)
        if value is not None
        and (key.startswith(OF_ALL_SERVERS) or (key.startswith("agents.") and key.endswith(OF_ALL_AGENTS)))
    }


def settings(config: Config) -> Iterator[tuple[str, object]]:
    """(key, value) of everything that is set or has a default, in the order of the documentation."""
    for key in KEYS:
        yield key.path, key.value(config)
    for name, most in sorted(config.limits.items()):
        yield f"limits.{name}", most
    for channel in config.channels:
        for key in CHANNEL_KEYS:
            if (found := key.value(channel)) is not None:
                yield f"channels.{channel.name}.{key.path}", found
    for name, agent in sorted(config.agents.items()):
        for key in AGENT_KEYS:
            if (found := key.value(agent)) is not None:
                yield f"agents.{name}.{key.path}", found
