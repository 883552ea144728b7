"""Which kind of agent a task asks for by its words."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.app.settings import KINDS
from muster.config import load
from muster.config.profiles import PROFILES
from muster.model.errors import BadConfig
from muster.model.profiles import GENERAL_PURPOSE, NOUN, Chooser

parse_config = partial(load.parse_config, kinds=KINDS)
CHOOSE = Chooser(PROFILES).choose
TITLES = Path(__file__).parent / "titles.tsv"


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


@pytest.mark.parametrize(
    ("title", "profile"),
    [
        ("Document the deploy process", "codi-documentation-writer"),
        ("Add snapshot tests for React components", "testing-specialist"),
        ("Database tests", "testing-specialist"),
        ("Login page with form validation", "frontend-development-agent"),
        ("Rename test_api/database.sql and deploy.html", GENERAL_PURPOSE),
        ("T012 [P] [US1] Create OrderService in src/auth/order_service.py", "backend-development"),
        ("Implement POST /orders", "backend-development"),
        ("Support OAuth2", "security-specialist"),
        ("Docs: how the database is deployed", "codi-documentation-writer"),
        ("Policies and tests", "testing-specialist"),
    ],
)
def test_the_verb_and_the_noun_weigh_more_than_what_they_are_about(title: str, profile: str) -> None:
    assert CHOOSE(title, "", "").profile == profile


RIGHT_MIN = 0.85


@pytest.mark.parametrize("half", ["tuned on", "not tuned on"])
def test_titles_of_all_kinds_get_their_profile(half: str) -> None:
    """304 titles as plans have them, in blocks of eight: every other block was not looked at for the table."""
    lines = TITLES.read_text().splitlines()
    begin = 0 if half == "tuned on" else 8
    rows = [line.split("\t") for at in range(begin, len(lines), 16) for line in lines[at : at + 8]]
    wrong = [
        (title, found, label) for label, title in rows if (found := CHOOSE(title, "", "").profile) != label
    ]
    print(f"{half}: {len(rows) - len(wrong)} of {len(rows)} right", *wrong, sep="\n  ")
    assert len(rows) == 152 and len(wrong) <= (1 - RIGHT_MIN) * len(rows)


@pytest.mark.parametrize("inside", ["build", "guild", "require", "capital", "apiary", "latest", "contest"])
def test_a_word_inside_another_one_is_none(inside: str) -> None:
    assert CHOOSE(f"The {inside} of it", inside, inside).profile == GENERAL_PURPOSE


def test_a_word_counts_once_and_at_its_best_place() -> None:
    chooser = Chooser({"a": ["alpha"], "b": ["beta", "gamma"]})
    once = chooser.choose("alpha", "alpha alpha alphas alphaed", "alpha")
    assert (once.score, once.words) == (NOUN, ("alpha",))
    assert chooser.choose("That of alpha", "beta", "gamma").profile == "a", "3 against 1 + 2: a wins a tie"
    assert chooser.choose("That of alpha", "beta", "gamma").ties == ("b",)
    assert chooser.choose("gamma", "beta", "alpha").profile == "b"


def test_the_first_of_the_table_wins_a_tie_and_the_others_are_named() -> None:
    table = {"x": ["one"], "y": ["two"], "z": ["three"]}
    tie = Chooser(table).choose("All of three two one", "", "")
    assert (tie.profile, tie.ties) == ("x", ("y", "z"))
    turned = Chooser(dict(reversed(table.items()))).choose("All of three two one", "", "")
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
