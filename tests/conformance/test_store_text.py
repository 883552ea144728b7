"""What every store promises of the text that tasks are looked for by."""

from __future__ import annotations

import sys
import unicodedata
from typing import Any

import pytest
from store_rows import PLAN_ID, Subject, new_task

from muster.model.numbers import NUMBER_MAX
from muster.model.rows import DEFAULT_WORKSPACE
from muster.model.states import TaskStatus
from muster.model.views import TaskFilter
from muster.stores import letters
from muster.stores.sqlite import reads

OTHER = DEFAULT_WORKSPACE + 1

TITLES = {
    1: "Fix the login form",
    2: "100% of [the] tests?",
    3: "1000 of the tests",
    4: "snake_case, snakeXcase",
    5: r"C:\temp\* and (a|b)+ ^$ {1} .",
    6: "Überprüfe die Straße",
    7: "ΟΔΟΣ и ЁЖИК",
    8: unicodedata.normalize("NFD", "Café ouvert"),
    9: "Line one\nline two",
}


@pytest.fixture
def titled(subject: Subject) -> Subject:
    subject.add_plan("billing", PLAN_ID)
    subject.add(*(new_task(number, f"k{number}", title=title) for number, title in TITLES.items()))
    subject.add(new_task(20, "Rückbau", title="x"), new_task(21, title="y"))
    return subject


def ids(subject: Subject, text: str, **more: Any) -> list[int]:
    return [view.id for view in subject.read("task_views", TaskFilter(text=text, **more))]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("login", [1]),
        ("LOGIN f", [1]),
        ("login  f", []),
        ("100%", [2]),
        ("%", [2]),
        ("[the]", [2]),
        ("tests?", [2]),
        ("tests", [2, 3]),
        ("snake_c", [4]),
        ("e_c", [4]),
        ("*", [5]),
        ("\\", [5]),
        ("\\TEMP\\", [5]),
        ("(a|b)+ ^$ {1} .", [5]),
        (".", [5]),
        ("***", []),
        ("[a-z]", []),
        ("überprüfe", [6]),
        ("ÜBERPRÜFE DIE", [6]),
        ("uberprufe", []),
        ("straße", [6]),
        ("STRAẞE", [6]),
        ("οδος", [7]),
        ("ёжик", [7]),
        ("CAFÉ", [8]),
        (unicodedata.normalize("NFD", "CAFÉ"), [8]),
        (unicodedata.normalize("NFD", "ÜBER"), [6]),
        ("one\nLINE", [9]),
        ("k7", [7]),
        ("BILLING/K7", [7]),
        ("ing/k", [*TITLES]),
        ("rÜck", [20]),
        ("billing/21", [21]),
        ("\0", []),
        ("x'; DROP TABLE tasks; --", []),
        ("🐙", []),
    ],
)
def test_a_text_is_found_as_it_stands_in_any_case_of_its_letters(
    titled: Subject, text: str, found: list[int]
) -> None:
    assert ids(titled, text) == found


def test_a_task_of_no_plan_is_found_by_its_own_name(subject: Subject) -> None:
    subject.add(new_task(1, "alone", plan_id=None), new_task(2, plan_id=None))
    assert (ids(subject, "ALONE"), ids(subject, "/"), ids(subject, "2")) == ([1], [], [2])


def test_a_text_goes_with_all_other_conditions(titled: Subject) -> None:
    titled.add(new_task(30, "k30", title="Fix login again", status=TaskStatus.FAILED))
    assert ids(titled, "login") == [1, 30]
    assert ids(titled, "login", statuses=(TaskStatus.FAILED,)) == [30]
    assert ids(titled, "login", plan="elsewhere") == []
    assert ids(titled, "login", ids=(1, 2)) == [1]
    assert ids(titled, "login", after_id=1) == [30]
    assert ids(titled, "login", limit=1) == [1]


def test_a_text_is_looked_for_in_parts_that_miss_and_repeat_nothing(
    titled: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reads, "TASKS_AT_ONCE", 2)
    assert ids(titled, "billing") == [*TITLES, 20, 21]
    assert ids(titled, "billing", after_id=3, limit=6) == [4, 5, 6, 7, 8, 9]
    assert ids(titled, "billing/2") == [21]
    assert ids(titled, "billing", after_id=21) == []
    titled.add(new_task(NUMBER_MAX, "far", title="Made long after"))
    assert ids(titled, "long AFTER") == [NUMBER_MAX]


@pytest.mark.promise("S13")
def test_a_text_finds_nothing_of_another_workspace(titled: Subject) -> None:
    other = titled.of(OTHER)
    assert ids(other, "login") == [] and ids(other, "billing/k1") == []
    assert ids(titled, "login") == [1]


def test_letters_are_told_apart_as_python_folds_them() -> None:
    kin: dict[str, list[str]] = {}
    for letter in map(chr, range(sys.maxunicode + 1)):
        kin.setdefault(letter.casefold(), []).append(letter)
    same = {letter: "".join(all_) for all_ in kin.values() if len(all_) > 1 for letter in all_}
    assert letters._namesakes() == same
    assert not set(same) & set(r"\[]^-*?"), "what has a meaning in a choice of letters"
