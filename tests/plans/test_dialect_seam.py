"""What a dialect may say of a plan, by one that is made up."""

from __future__ import annotations

import re

import pytest

from muster.model.edits import PlanDocument
from muster.model.errors import BadPlan
from muster.plans import dialects
from muster.plans.dialects.base import Dialect, Parts
from muster.plans.dialects.top import FileTop
from muster.plans.markdown import parse, tick
from muster.plans.problems import Problems


class Numbered(Dialect):
    """`- [ ] 1.2 ! Title (after 1.1)`; `?` is optional, `Points:` below is metadata."""

    name = "numbered"
    order = "file"
    says = "in the order of the numbers"

    def recognise(self, look: FileTop) -> str:
        return (
            "it has numbers and points"
            if any("Points:" in line for line in (*look.below, *look.titles))
            else ""
        )

    def read_title(self, text: str) -> Parts:
        found = re.fullmatch(r"([0-9.]+) ([!?] )?(.*?)(?: \(after ([0-9.]+)\))?", text)
        if not found:
            return Parts(text)
        number, mark, title, after = found.groups()
        above = number.rpartition(".")[0]
        return Parts(title, number, (after,) if after else (), above, beside=mark == "! ", skip=mark == "? ")

    def read_body(self, text: str, parts: Parts) -> tuple[str, Parts]:
        points = re.search(r"Points: (\d+)", text)
        kept = re.sub(r"Points: \d+\n?", "", text).strip()
        return kept, parts._replace(fields={"sort_key": int(points[1])}) if points else parts


TEXT = """# P
- [ ] 1 Base
  Of concrete.
- [x] 1.1 ! Walls (after 1)
  Points: 3
  Of stone.
- [ ] 1.2 ? Paint (after 1.9)
  - [ ] 1.2.1 Colour
- [ ] 2 Roof (after 1.2) {#roof after=1.1 sort=7}
  Points: 5
"""


@pytest.fixture(autouse=True)
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialects, "DIALECTS", (Numbered(),))


def read(text: str = TEXT) -> PlanDocument:
    return parse(text, "plan.md")


def test_a_dialect_says_what_a_box_is() -> None:
    document = read()
    assert (document.dialect, document.dialect_why) == ("numbered", "it has numbers and points")
    assert (document.dialect_order, document.order) == ("file", "")
    base, walls, roof = document.tasks
    assert (base.key, base.title, base.parent) == ("1", "Base", None)
    assert (walls.key, walls.title, walls.parent, walls.depends_on) == ("1.1", "Walls", "1", ("1",))
    assert (walls.description, walls.sort_key, walls.beside, walls.done) == ("Of stone.", 3, True, True)
    assert (roof.key, roof.title) == ("roof", "Roof"), "braces go before what the dialect reads"
    assert (roof.depends_on, roof.sort_key) == (("1.1",), 7), "what waits for a skipped box goes on"


def test_a_box_is_ticked_by_its_dialects_id() -> None:
    assert tick(TEXT.encode(), ["1"])[0] == TEXT.replace("- [ ] 1 ", "- [x] 1 ").encode()


def test_what_a_dialect_has_read_wrongly_stops_nothing() -> None:
    doubts = Problems("plan.md")
    (task,) = parse("- [ ] 3 Points: none (after 2)\n", "plan.md", doubts).tasks
    assert task.depends_on == ()
    assert "after=2: no such task in this plan" in doubts.told()[0]


@pytest.mark.parametrize(("said", "key"), [("none", "1-base"), ("numbered", "1")])
def test_the_front_matter_has_the_last_word(said: str, key: str) -> None:
    assert read(f"---\ndialect: {said}\n---\n- [ ] 1 Base\n").tasks[0].key == key


@pytest.mark.parametrize("said", ["file", "phases", "free"])
def test_the_front_matter_says_the_order(said: str) -> None:
    assert read(f"---\norder: {said}\n---\n{TEXT}").order == said


def test_another_order_is_told() -> None:
    with pytest.raises(BadPlan, match="is 'random', and not one of file, phases, free"):
        read(f"---\norder: random\n---\n{TEXT}")
