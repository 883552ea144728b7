"""Titles of boxes as words: which two of them may mean the same work.  Pure."""

from __future__ import annotations

import re
from difflib import SequenceMatcher

from muster.model.edits import key_part

LIKE = 0.5
"""From this ratio on, a title in the same place may be another one's."""
LIKE_ALONE = 0.3
"""Where it is the only one that came between two others, and the only one that went."""
SAME_WORD = 0.8
TELLING_WORDS = 3
"""A title of so many words is not met twice by chance."""
_CODE = re.compile(r"[A-Za-z]+[-.]?[0-9][A-Za-z0-9]*(?:[.-][A-Za-z0-9]+)*:[ \t]+(?=\S)")
_SMALL = frozenset({"a", "an", "the", "of", "to", "for", "and", "in", "on", "with", "all", "up"})


def plain_words(title: str) -> str:
    """A title as it is compared: without a leading code, and whatever a slug leaves out."""
    bare = _CODE.sub("", title, count=1)
    return key_part(bare).replace("-", " ") or title


def likeness(one: str, other: str) -> float:
    if one == other:
        return 1.0
    matcher = SequenceMatcher(None, one, other, autojunk=False)
    if matcher.real_quick_ratio() < LIKE_ALONE or matcher.quick_ratio() < LIKE_ALONE:
        return 0.0
    return matcher.ratio()


def titles_alike(one: str, other: str) -> bool:
    """Whether two boxes with one id may be one task: short ids (`T001`, `1.1`) are met in many plans."""
    return likeness(plain_words(one), plain_words(other)) >= LIKE


def corrected(before: str, after: str) -> bool:
    """Whether only the spelling has changed, or words that say nothing: then it is the same work."""
    old, new = plain_words(before).split(), plain_words(after).split()
    for what, i, k, j, m in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if what == "equal":
            continue
        gone, come = old[i:k], new[j:m]
        if len(gone) == len(come):
            if not all(map(_same_word, gone, come)):
                return False
        elif not _SMALL.issuperset(gone + come):
            return False
    return True


def _same_word(one: str, other: str) -> bool:
    if {one, other} <= _SMALL:
        return True
    digits = [re.sub(r"\D", "", word) for word in (one, other)]
    return digits[0] == digits[1] and one[0] == other[0] and likeness(one, other) >= SAME_WORD
