"""What a task is about, where not every agent can reach it: a host, a repository, an environment.

To the matching a target is one more thing that the agent must offer; people write and read it as itself.
"""

from __future__ import annotations

from collections.abc import Iterable

_MARK = "target:"


def required(capabilities: Iterable[str], target: str | None) -> tuple[str, ...]:
    """Everything that an agent must offer for a task, in order."""
    return tuple(sorted({*capabilities, *((_MARK + target,) if target else ())}))


def offered(capabilities: Iterable[str], targets: Iterable[str]) -> tuple[str, ...]:
    """Everything that an agent offers."""
    return (*capabilities, *(_MARK + target for target in targets))


def target_of(requirement: str) -> str | None:
    """The target that is required; None for a capability."""
    return requirement.removeprefix(_MARK) if requirement.startswith(_MARK) else None
