"""Settings that stand in the environment: one variable for each key, `MUSTER_TASK_RETRIES` for `task.retries`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from muster.config.keys import KEYS, Key
from muster.model.secrets import VAULT_KEY
from muster.model.wording import hint

PREFIX = "MUSTER_"


def variable_of(key: str) -> str:
    """`MUSTER_TASK_RETRIES` of `task.retries`."""
    return PREFIX + key.upper().replace(".", "_")


VARIABLES: Mapping[str, Key] = {variable_of(key.path): key for key in KEYS}
FOR_USERS = (
    *(
        "MUSTER_ROOT",
        "MUSTER_DEBUG",
        "MUSTER_SERVER",
        "MUSTER_CONTEXT",
        "MUSTER_TOKEN_FILE",
        "MUSTER_CA_FILE",
        VAULT_KEY,
    ),
)
OURS = frozenset(
    {
        *FOR_USERS,
        *("MUSTER_TASK", "MUSTER_TASK_ID", "MUSTER_EPOCH", "MUSTER_BY_HAND", "MUSTER_SOCKET", "MUSTER_TOKEN"),
        *(
            "MUSTER_RESULT",
            "MUSTER_PROMPT_FILE",
            "MUSTER_CHECKPOINT",
            "MUSTER_NOTE",
            "MUSTER_INPUT_CONTEXT_FILE",
        ),
        *("MUSTER_HANDOVER", "MUSTER_HANDOVER_FILE"),
        *("MUSTER_NOTICE", "MUSTER_WORKDIR", "MUSTER_BRANCH", "MUSTER_PORT_BASE", "MUSTER_PORT_COUNT"),
        *(
            "MUSTER_SHARED",
            "MUSTER_PROJECT",
            "MUSTER_WORKER",
            "MUSTER_ATTEMPT",
            "MUSTER_AGENT_TEST",
            "MUSTER_WORKER_TRAITS",
            "MUSTER_NO_OPTIONS",
        ),
    }
)
"""What Muster reads besides, and what it gives to agents and to git: no key may ever have one of these names."""


class Variable(NamedTuple):
    name: str
    key: str
    value: object
    """As TOML would have it."""


def settings_in(env: Mapping[str, str]) -> Iterator[Variable]:
    """Those of `env`, unchecked; an empty one counts as unset."""
    for name, key in VARIABLES.items():
        if text := env.get(name):
            yield Variable(name, key.path, _value(key, text))


def unknown_in(env: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """(name, which may have been meant, or nothing) of the variables that have our prefix and no meaning."""
    # Without the prefix, which would make all of them alike.
    known = {name.removeprefix(PREFIX): name for name in (*VARIABLES, *FOR_USERS)}
    for name in sorted(env):
        if name.startswith(PREFIX) and name not in VARIABLES and name not in OURS:
            yield name, hint(name.removeprefix(PREFIX), known, known)


def _value(key: Key, text: str) -> object:
    """`5` is a number and `true` a flag where one is meant: the command `true` is a text, and so is the port `5`.

    What TOML does not know, like `30s`, needs no quotes here.
    """
    import tomllib

    try:
        read = tomllib.loads(f"value = {text}")
    except (tomllib.TOMLDecodeError, RecursionError):
        return text
    value = read["value"]
    return value if len(read) == 1 and isinstance(value, key.takes) else text
