"""Which kind of agent a task asks for by its words.

A table names words for each kind.  A word counts where it stands as a word of its own, in whatever form (`tests`,
`tested`), never inside another one: the `ui` of `build` is none.  A title's verb and the noun that it is about
weigh more than what stands before that noun, and that more than what follows a preposition: "Add snapshot tests
for React components" is about tests.  Names of files count for nothing.

What a task is about, where not every agent can reach it (a host, a repository), is its target: to the matching
one more thing that the agent must offer; people write and read it as itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

GENERAL_PURPOSE = "general-purpose"
"""The kind of what no word leads to anything else; every agent is of it."""

VERB, NOUN, BEFORE_NOUN, FURTHER, EPIC, TEXT = 12, 9, 6, 3, 2, 1
"""What a word weighs by the place where it was found, the first four of them in the title.  Each word counts
once, at its best place."""

TEXT_CHARS_MAX = 20_000
"""As much of a task's text is looked at."""

_WORD = re.compile(r"[^\W_]+")
_PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
"""Of a name like `OrderService`."""
_ENDINGS = (("s", ""), ("es", ""), ("ies", "y"), ("ed", ""), ("ed", "e"), ("ing", ""), ("ing", "e"))
_MAY_END = ("s", "ed", "ing", *"0123456789")
_LABEL = re.compile(r"(?:\[[^\]]*\]|[A-Z]+-?\d[\w.-]*:?(?=\s)|\d+(?:\.\d+)*[.)]?(?=\s))\s*")
"""`T012`, `[P]`, `1.2`: before the title itself."""
_ROUTE = re.compile(r"\b(?:GET|POST|PUT|PATCH|DELETE) /\S*")
_FILE = re.compile(r"\S*/\S*\.\w+|[\w-]+(?:\.[\w-]+)*\.(?:[a-z]{1,4}|[a-z]+[0-9])(?=\s|$)|\S+/\S*/\S*")
_PREPOSITIONS = """
    after against as at before behind between by for from in instead into of on onto over per so that to
    under using via when which while who with without
"""
_IMPERATIVES = """
    add allow apply assert automate backfill benchmark block build bump cache change check choose clarify
    clean collect compare configure convert cover create decide define delete deploy describe design disable
    document encrypt enforce ensure exclude expire explain expose extend extract find fix fuzz generate give
    handle harden hash implement improve increase integrate introduce invalidate investigate limit list load
    make measure migrate mock monitor move normalize optimize parse partition plan port prevent proofread
    protect provide provision publish read record redesign reduce refactor remove rename render renew
    reorganize replace restrict return review rewrite roll rotate run sanitize scan secure seed send set
    setup ship show simplify simulate split store stream style support switch sync test translate triage
    tune unskip update upgrade use validate verify write
"""
_FURTHER, _VERBS = frozenset(_PREPOSITIONS.split()), frozenset(_IMPERATIVES.split())
"""What begins what is further away, and what titles begin with: the noun is looked for in between."""


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


_Weighed = tuple[str, int]
"""A word, and what it weighs."""


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
        self._first_words: tuple[str, ...] = ()
        """Of `_starts`: most words begin with none of them."""
        self._seen: dict[str, list[_Entry]] = {}
        for profile, words in table.items():
            for word in dict.fromkeys(words):
                first, *rest = words_of(word)
                entry = _Entry(profile, word, tuple(rest))
                if word.endswith("*"):
                    self._starts.append((first, entry))
                else:
                    self._whole.setdefault(first, []).append(entry)
        self._first_words = tuple(start for start, _ in self._starts)

    def choose(self, title: str, text: str, epic: str) -> Choice:
        weights: dict[_Entry, int] = {}
        for words in (_title(title), _evenly(epic, EPIC), _evenly(text[:TEXT_CHARS_MAX], TEXT)):
            if any(map(self._entries, [word for word, _ in words])):
                for entry, weight in self._found(words):
                    weights[entry] = max(weight, weights.get(entry, 0))
        scores: dict[str, int] = {}
        for entry, weight in weights.items():
            scores[entry.profile] = scores.get(entry.profile, 0) + weight
        if not scores:
            return Choice(GENERAL_PURPOSE)
        best = max(scores.values())
        first, *ties = (profile for profile in self._order if scores.get(profile) == best)
        said = tuple(entry.word for entry in weights if entry.profile == first)
        return Choice(first, said, best, tuple(ties))

    def _found(self, words: Sequence[_Weighed]) -> Iterator[tuple[_Entry, int]]:
        for at, (word, weight) in enumerate(words):
            for entry in self._entries(word):
                following = words[at + 1 : at + 1 + len(entry.rest)]
                if len(following) == len(entry.rest) and all(
                    known in _forms(each) for known, (each, _) in zip(entry.rest, following, strict=True)
                ):
                    # Several words together say more than one of them.
                    yield entry, max(weight, *(heavy for _, heavy in following), 0) + len(following)

    def _entries(self, word: str) -> list[_Entry]:
        found = self._seen.get(word)
        if found is None:
            found = [entry for form in _forms(word) for entry in self._whole.get(form, ())]
            if word.startswith(self._first_words):
                found += [entry for start, entry in self._starts if word.startswith(start)]
            self._seen[word] = found
        return found


def _forms(word: str) -> Iterable[str]:
    """The word itself first: `oauth2` is `oauth`, `policies` is `policy`."""
    if not word.endswith(_MAY_END):
        return (word,)
    ends = (word.removesuffix(end) + instead for end, instead in _ENDINGS if word.endswith(end))
    return dict.fromkeys((word, word.rstrip("0123456789"), *ends))


def _evenly(text: str, weight: int) -> list[_Weighed]:
    return [(word, weight) for word in words_of(text)]


def _title(title: str) -> list[_Weighed]:
    """The words of a title, each with what it weighs."""
    while label := _LABEL.match(title):
        title = title[label.end() :]
    if "/" in title or "." in title:
        title = _FILE.sub(" ", _ROUTE.sub("endpoint", title))
    about, _, rest = title.partition(": ")
    words = _WORD.findall(about)
    folded = [word.casefold() for word in words]
    begin = 1 if len(words) > 1 and folded[0] in _VERBS else 0
    end = next((at for at in range(begin, len(words)) if folded[at] in _FURTHER), len(words))
    nouns = [at - 1 for at in range(begin + 1, end) if folded[at] == "and"] or [end - 1]
    found: list[_Weighed] = []
    for at, word in enumerate(words):
        weight = VERB if at < begin else NOUN if at in nouns else BEFORE_NOUN if at < end else FURTHER
        found.append((folded[at], weight))
        if word[1:] != word[1:].lower() and len(parts := _PART.findall(word)) > 1:
            found += [(part.casefold(), weight) for part in parts]
    return found + _evenly(rest, FURTHER)


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
