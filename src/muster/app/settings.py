"""The settings of a project, and the kinds of agents that they may name: all that are installed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib import import_module
from pathlib import Path

from muster.config.kinds import AgentKind
from muster.config.layers import Layers, Options, read_layers
from muster.config.load import checked
from muster.config.settings import Config

GROUP = "muster.agents"


class InstalledKinds(Mapping[str, AgentKind]):
    """Found by entry point, Muster's own and those of other packages alike; each is loaded when it is read."""

    def __getitem__(self, name: str) -> AgentKind:
        module, _, attribute = self._places[name].partition(":")
        kind = getattr(import_module(module), attribute)
        if not isinstance(kind, AgentKind):
            raise TypeError(f"{self._places[name]} is no AgentKind")
        return kind

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._places))

    def __len__(self) -> int:
        return len(self._places)

    @cached_property
    def _places(self) -> dict[str, str]:
        """As importlib.metadata would find them, which costs a command 25 of the 60 ms that it may take."""
        found: dict[str, str] = {}
        for folder in sys.path:
            for file in Path(folder).glob("*-info/entry_points.txt"):
                _, _, rest = f"\n{file.read_text('utf-8')}".partition(f"\n[{GROUP}]\n")
                for line in rest.partition("\n[")[0].splitlines():
                    name, equals, place = line.partition("=")
                    if equals:
                        found.setdefault(name.strip(), place.strip())
        return found


KINDS = InstalledKinds()


def load_config(root: Path, env: Mapping[str, str] = os.environ, options: Options = ()) -> Config:
    """What holds for the project in `root`: its file, the user's, the variables in `env`, and above them what a
    command's options.  Raises BadConfig."""
    return checked(read_layers(root, env, options), KINDS)


def load_with_origins(root: Path, env: Mapping[str, str] = os.environ) -> tuple[Config, Layers]:
    """As `load_config`, with where everything comes from."""
    layers = read_layers(root, env)
    return checked(layers, KINDS), layers
