"""Which values of a task's input context are secrets, and what is shown in their place.

Pure.  A text is a secret where its name, or one above it, says so, or where `{"$secret": "text"}` stands in its
place.  Shown are stars with a mark that tells one value from another: who sends them back means that value.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from muster.model.errors import BadInput
from muster.model.secrets import VALUE_CHARS_MAX

MARK = "$secret"
STARS = "********"
SECRETS_MAX = 100
"""Of one task: each of them is looked for in all that its agent prints."""

_WORDS = frozenset(
    {
        *("password", "passwords", "passwd", "passphrase", "passphrases", "passcode", "pwd"),
        *("secret", "secrets", "token", "tokens", "credential", "credentials", "creds"),
        *("authorization", "bearer", "jwt", "cookie", "cookies", "dsn", "apikey", "apikeys"),
    }
)
_LAST_WORDS = frozenset({"pass", "auth", "otp"})
"""A secret only at the end of a name: `dbPass`, and not `passRate`."""
_KINDS_OF_KEY = frozenset(
    {
        *("api", "access", "private", "secret", "signing", "encryption", "ssh", "auth", "account", "deploy"),
        *("master", "shared", "storage", "service", "session", "license", "webhook"),
    }
)
"""`apiKey`, and not `publicKey` or `sortKey`."""
_RUN_TOGETHER = re.compile(
    r"(?:passwords?|passwd|passphrase|secrets?|tokens?|credentials?|authorization|connectionstring"
    r"|(?:api|access|private|secret|signing|encryption|ssh|auth)_?keys?)$"
)
_MEASURES = frozenset({"max", "min", "num", "number", "count", "counts", "limit", "total", "used", "budget"})
_ABOUT = _MEASURES | {
    *("name", "names", "type", "kind", "url", "uri", "endpoint", "path", "file", "length", "size", "ttl"),
    *("expiry", "expires", "policy", "field", "header", "format", "variable", "env"),
}
"""A name that ends so is about a secret: `tokenCount`, `passwordFile`."""
_SPLIT = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_STARS = re.compile(r"\*+(?:#[0-9a-f]+)?")
_GIVE = "give the value itself, or the stars as they were read from this task"


@functools.lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """`apiKey`, `DB_PASSWORD`, `github-token`; not `maxTokens`, `tokenCount`, `passwordFile`, `sortKey`."""
    words = [word.lower() for word in _SPLIT.findall(name)]
    if not words or words[0] in _MEASURES or words[-1] in _ABOUT:
        return False
    if words[-1] in _LAST_WORDS or not _WORDS.isdisjoint(words):
        return True
    if any(of in _KINDS_OF_KEY and key in {"key", "keys"} for of, key in itertools.pairwise(words)):
        return True
    return any(map(_RUN_TOGETHER.search, words)) or words[-2:] == ["connection", "string"]


def secrets_in(context: Mapping[str, Any], kept: Mapping[str, str] | None = None) -> dict[str, str]:
    """The secrets of an input context as somebody gives it, by JSON pointer.

    `kept`: those of the task until now, by what is shown of each.

    Raises BadInput for a mark that is none, and for stars that stand for nothing.
    """
    if not kept and not _may_hold(context):
        return {}
    kept = kept or {}
    found: dict[str, str] = {}
    for place, text, marked in _texts(context, (), inside=False):
        if marked is None and text in kept:
            wrong = "has the stars of a secret where nothing says that it is one"
            raise _wrong(place, wrong, f'{{"{MARK}": "{STARS}..."}}')
        if marked is None:
            continue
        if _STARS.fullmatch(text) and text not in kept:
            raise _wrong(place, "is stars, and they stand for no secret of this task", _GIVE)
        if len(text) > VALUE_CHARS_MAX:
            raise _wrong(place, f"is a secret of more than {VALUE_CHARS_MAX:,} characters", "a shorter one")
        found[_pointer(place)] = kept.get(text, text)
    if len(found) > SECRETS_MAX:
        raise _wrong((), f"has {len(found)} secrets, and a task may have {SECRETS_MAX}", "less of them")
    return found


def shown(
    context: Mapping[str, Any], secrets: Mapping[str, str], mark: Callable[[str], str]
) -> dict[str, Any]:
    """`context` with stars in place of its secrets; `mark` tells values apart, and nothing of them."""
    stars = {at: f"{STARS}#{mark(value)}" for at, value in secrets.items()}
    return _replaced(context, stars, marks_stay=True)


def whole(context: Mapping[str, Any], secrets: Mapping[str, str]) -> dict[str, Any]:
    """As it was given, from what is shown of it; a marked value stands there by itself."""
    return _replaced(context, secrets, marks_stay=False)


def stars_of(context: Mapping[str, Any]) -> set[str]:
    """What is shown in place of its secrets."""
    return {value for _, value, marked in _texts(context, (), inside=False) if marked is not None}


def compared(kept: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """What would be shown of `given` beside what is shown until now.  Raises BadInput.

    A value is another one, whatever it is: who only compares is not to find out by guessing.
    """
    stars = stars_of(kept)
    secrets = secrets_in(given, {one: one for one in stars})
    return shown(given, secrets, lambda value: value.partition("#")[2] if value in stars else "given")


def by_stars(context: Mapping[str, Any], secrets: Mapping[str, str]) -> dict[str, str]:
    """The secrets of a task by what is shown of each."""
    places = ((_pointer(place), value) for place, value, _ in _texts(context, (), inside=False))
    return {value: secrets[at] for at, value in places if at in secrets}


def _may_hold(node: Any) -> bool:
    """False where there is certainly none: a look that every task with an input context has to pay for."""
    if type(node) is list:
        return any(type(value) in _DEEP and _may_hold(value) for value in node)
    for name, value in node.items():
        if name == MARK:
            return True
        if type(value) is str:
            if is_secret_name(name):
                return True
        elif type(value) in _DEEP and (is_secret_name(name) or _may_hold(value)):
            return True
    return False


_DEEP = (dict, list)
_Place = tuple[str | int, ...]


def _texts(node: Any, place: _Place, *, inside: bool) -> Iterator[tuple[_Place, str, bool | None]]:
    """All texts with their places, and whether they are secrets: marked (True), by name (False), no (None).

    Raises BadInput for a mark that is none.
    """
    if isinstance(node, str):
        if node:
            yield place, node, False if inside else None
    elif isinstance(node, Mapping):
        if MARK in node:
            if len(node) > 1 or not isinstance(node[MARK], str) or not node[MARK]:
                raise _wrong(
                    place,
                    f"marks a secret with {MARK}, and that takes one text and nothing beside it",
                    f'{{"{MARK}": "TEXT"}}',
                )
            yield place, node[MARK], True
            return
        for name, value in node.items():
            if type(value) in {str, dict, list}:
                yield from _texts(value, (*place, name), inside=inside or is_secret_name(name))
    elif isinstance(node, list):
        for at, value in enumerate(node):
            if type(value) in {str, dict, list}:
                yield from _texts(value, (*place, at), inside=inside)


def _replaced(context: Mapping[str, Any], texts: Mapping[str, str], *, marks_stay: bool) -> dict[str, Any]:
    def walk(node: Any, at: str) -> Any:
        if isinstance(node, dict):
            if MARK in node:
                return {MARK: texts[at]} if marks_stay and at in texts else texts.get(at, node)
            return {name: walk(value, f"{at}/{_escaped(name)}") for name, value in node.items()}
        if isinstance(node, list):
            return [walk(value, f"{at}/{number}") for number, value in enumerate(node)]
        return texts.get(at, node) if isinstance(node, str) else node

    made: dict[str, Any] = walk(dict(context), "")
    return made


def _pointer(place: _Place) -> str:
    return "".join(f"/{_escaped(str(part))}" for part in place)


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _wrong(place: _Place, what: str, fix: str) -> BadInput:
    pointer = f"/inputContext{_pointer(place)}"
    error = BadInput(f"{pointer[:200]} {what}; nothing was changed", fix)
    error.pointer = pointer
    return error


def input_purpose(workspace_id: int, task_id: int) -> str:
    """What the secrets of a task's input context are sealed for in the vault."""
    return f"input context of task {task_id} of workspace {workspace_id}"


def cannot_open(task_id: int) -> str:
    return f"the secrets of task {task_id}'s input context cannot be opened, their key is lost"


def how_to_open(task_id: int) -> str:
    return (
        "restore its key from a backup (.muster/vault.key or MUSTER_VAULT_KEY), or give the values anew: "
        f"muster task edit {task_id} --input-context @FILE; then muster task retry {task_id}"
    )
