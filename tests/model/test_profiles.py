"""Which kind of agent a task asks for by its words."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.app.settings import KINDS
from muster.config import load
from muster.config.profiles import PROFILES
from muster.model.errors import BadConfig
from muster.model.profiles import GENERAL_PURPOSE, Chooser

parse_config = partial(load.parse_config, kinds=KINDS)
CHOOSE = Chooser(PROFILES).choose


@pytest.mark.parametrize(
    ("title", "text", "epic", "profile"),
    [
        ("Deploy with Docker", "", "", "devops-engineer"),
        ("Set up the CI/CD pipeline", "", "", "devops-engineer"),
        ("Check authentication", "", "", "security-specialist"),
        ("Raise coverage", "", "", "testing-specialist"),
        ("Tests for the parser", "", "", "testing-specialist"),
        ("Migrate the schema", "", "", "database-architect"),
        ("New API endpoint", "", "", "backend-development"),
        ("React component", "", "", "frontend-development-agent"),
        ("Write the README", "", "", "codi-documentation-writer"),
        ("The front-end", "", "", "frontend-development-agent"),
        ("TESTS", "", "", "testing-specialist"),
        ("Build it", "", "", GENERAL_PURPOSE),
        ("Require a capital", "", "", GENERAL_PURPOSE),
        ("Do it", "It needs a migration of the schema.", "", "database-architect"),
        ("Do it", "", "Documentation", "codi-documentation-writer"),
        ("Tidy the guide", "Look at every test.", "", "codi-documentation-writer"),
        ("", "", "", GENERAL_PURPOSE),
    ],
)
def test_words_lead_to_a_kind(title: str, text: str, epic: str, profile: str) -> None:
    assert CHOOSE(title, text, epic).profile == profile


@pytest.mark.parametrize("inside", ["build", "guild", "require", "capital", "apiary", "latest", "contest"])
def test_a_word_inside_another_one_is_none(inside: str) -> None:
    assert CHOOSE(f"The {inside} of it", inside, inside).profile == GENERAL_PURPOSE


def test_a_word_counts_once_and_at_its_best_place() -> None:
    chooser = Chooser({"a": ["alpha"], "b": ["beta", "gamma"]})
    once = chooser.choose("alpha", "alpha alpha alphas alphaed", "alpha")
    assert (once.score, once.words) == (3, ("alpha",))
    assert chooser.choose("alpha", "beta", "gamma").profile == "a", "3 against 1 + 2 is a tie that a wins"
    assert chooser.choose("alpha", "beta", "gamma").ties == ("b",)
    assert chooser.choose("gamma", "beta", "alpha").profile == "b"


def test_the_first_of_the_table_wins_a_tie_and_the_others_are_named() -> None:
    table = {"x": ["one"], "y": ["two"], "z": ["three"]}
    tie = Chooser(table).choose("three two one", "", "")
    assert (tie.profile, tie.ties) == ("x", ("y", "z"))
    turned = Chooser(dict(reversed(table.items()))).choose("three two one", "", "")
    assert (turned.profile, turned.ties) == ("z", ("y", "x"))


@given(st.text(max_size=60), st.text(max_size=60), st.text(max_size=30))
def test_any_text_has_a_kind_that_is_known(title: str, text: str, epic: str) -> None:
    found = CHOOSE(title, text, epic)
    assert found.profile in PROFILES or (found.profile, found.score) == (GENERAL_PURPOSE, 0)
    assert (
        CHOOSE(title.upper(), text, epic).profile == CHOOSE(title.lower(), text, epic).profile
        or not title.isascii()
    )


def test_the_table_is_extended_replaced_and_shortened() -> None:
    raw = {
        "data-scientist": ["pandas", "jupyter notebook"],
        "testing-specialist": ["probe*"],
        "devops-engineer": [],
    }
    profiles = parse_config({"profiles": raw}).profiles
    assert list(profiles)[-1] == "data-scientist" and "devops-engineer" not in profiles
    choose = Chooser(profiles).choose
    assert choose("A Jupyter notebook", "", "").profile == "data-scientist"
    assert choose("Probing", "", "").profile == GENERAL_PURPOSE
    assert choose("Probes", "", "").profile == "testing-specialist"
    assert choose("Deploy", "", "").profile == GENERAL_PURPOSE
    assert parse_config({}).profiles == PROFILES


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ({"general-purpose": ["all"]}, "profiles.general-purpose"),
        ({"x": "word"}, "profiles.x"),
        ({"x": ["--"]}, "'--' is no word"),
        ({"x": ["a*b"]}, "is no word"),
        ({"x": ["front end*"]}, "is no word"),
        ({"x": ["*"]}, "is no word"),
        ({"x": [3]}, r"profiles.x\[0\]"),
    ],
)
def test_mistakes_are_named(raw: dict[str, object], said: str) -> None:
    with pytest.raises(BadConfig, match=said):
        parse_config({"profiles": raw})
