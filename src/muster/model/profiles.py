"""Which kind of agent a task asks for by its words.

A table names words for each kind.  A word counts where it stands as a word of its own, in whatever form (`tests`,
`tested`), never inside another one: the `ui` of `build` is none.

What a task is about, where not every agent can reach it (a host, a repository), is its target: to the matching
one more thing that the agent must offer; people write and read it as itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

GENERAL_PURPOSE = "general-purpose"
"""The kind of what no word leads to anything else; every agent is of it."""

TITLE, EPIC, TEXT = 3, 2, 1
"""What a word weighs by the place where it was found.  Each word counts once, at its best place."""

TEXT_CHARS_MAX = 20_000
"""As much of a task's text is looked at."""

_WORD = re.compile(r"[^\W_]+")
_ENDINGS = ("s", "es", "ed", "ing")


class Choice(Struct, frozen=True):
    profile: str
    words: tuple[str, ...] = ()
    """What has led to it, as the table writes them."""
    score: int = 0
    ties: tuple[str, ...] = ()
    """Profiles of the same score that stand further down in the table."""


class _Entry(Struct, frozen=True):
    profile: str
    word: str
    rest: tuple[str, ...]
    """What must follow its first word."""


def words_of(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def by_words(agent: str | None, profile: str | None, *, asks: bool, usual: str | None) -> bool:
    """Whether a task's words say which kind of agent is preferred.

    It names neither an agent nor a kind, and either `asks` for something else (a capability, a target) or there
    is no `usual` agent for such tasks.
    """
    return agent is None and profile is None and (asks or usual is None)


class Chooser:
    """Chooses by one table, `{profile: words}`; a word may be several (`front end`) or a start (`deploy*`)."""

    def __init__(self, table: Mapping[str, Sequence[str]]) -> None:
        self._order = list(table)
        self._whole: dict[str, list[_Entry]] = {}
        self._starts: list[tuple[str, _Entry]] = []
        self._seen: dict[str, tuple[_Entry, ...]] = {}
        for profile, words in table.items():
            for word in dict.fromkeys(words):
                first, *rest = words_of(word)
                entry = _Entry(profile, word, tuple(rest))
                if word.endswith("*"):
                    self._starts.append((first, entry))
                else:
                    self._whole.setdefault(first, []).append(entry)

    def choose(self, title: str, text: str, epic: str) -> Choice:
        weights: dict[_Entry, int] = {}
        for weight, place in ((TITLE, title), (EPIC, epic), (TEXT, text[:TEXT_CHARS_MAX])):
            for entry in self._found(words_of(place)):
                weights.setdefault(entry, weight)
        scores: dict[str, int] = {}
        for entry, weight in weights.items():
            scores[entry.profile] = scores.get(entry.profile, 0) + weight
        if not scores:
            return Choice(GENERAL_PURPOSE)
        best = max(scores.values())
        first, *ties = (profile for profile in self._order if scores.get(profile) == best)
        words = tuple(entry.word for entry in weights if entry.profile == first)
        return Choice(first, words, best, tuple(ties))

    def _found(self, words: Sequence[str]) -> dict[_Entry, None]:
        found: dict[_Entry, None] = {}
        for at, word in enumerate(words):
            if word not in self._seen:
                self._seen[word] = tuple(self._entries(word))
            for entry in self._seen[word]:
                if entry.rest == tuple(words[at + 1 : at + 1 + len(entry.rest)]):
                    found[entry] = None
        return found

    def _entries(self, word: str) -> list[_Entry]:
        forms = [word, *(word.removesuffix(ending) for ending in _ENDINGS if word.endswith(ending))]
        found = [entry for form in forms for entry in self._whole.get(form, ())]
        return found + [entry for start, entry in self._starts if word.startswith(start)]


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
