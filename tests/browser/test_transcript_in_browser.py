"""What an agent prints, on a page that is open: each line is there, or a row says that it is not."""

from __future__ import annotations

import re

from browsers import Let
from playwright.sync_api import Locator, Page, expect

from far_servers import FarOwner
from patience import PATIENCE_S

expect.set_options(timeout=PATIENCE_S * 1000)
ROWS_MAX, HELD_ROWS_MAX = 1000, 3000
"""Of a page whose reader follows, and of another one's: what came last may be 1000 rows too many."""


class Printing:
    """The attempt that runs, and its page."""

    def __init__(self, far: FarOwner, page: Page) -> None:
        self._far, self._page = far, page
        self._number = far.tasks()["api"].id
        self._printed = self._offset = 0
        self.said: Locator = page.get_by_label("Transcript", exact=True)
        self.print(1)
        page.goto(f"/tasks/{self._number}")
        self.live()

    def live(self) -> None:
        expect(self._page.locator("#link")).to_have_text(re.compile("^live"))

    def print(self, count: int, stream: str = "stdout", chunk: int = 250_000) -> str:
        """So many lines; the last one."""
        numbers = range(self._printed, self._printed + count)
        data = b"".join(b"line %d.\n" % number for number in numbers)
        for at in range(0, len(data), chunk):
            part = data[at : at + chunk]
            self._far.log(self._number, 1, part, stream=stream, offset=self._offset + at)
        self._printed, self._offset = numbers[-1] + 1, self._offset + len(data)
        return f"line {numbers[-1]}."

    def shown(self) -> str:
        """The numbers of the lines that are shown, as `0-41`, with what the rows between them say."""
        told: list[str] = []
        begin = last = -1
        for line in [*self.said.evaluate("(it) => [...it.children].map((row) => row.textContent)"), ""]:
            numbers = [int(number) for number in re.findall(r"line (\d+)\.", line)]
            for number in numbers:
                if number != last + 1 or begin < 0:
                    told += [f"{begin}-{last}"] if begin >= 0 else []
                    begin = number
                last = number
            if not numbers:
                told += [f"{begin}-{last}"] if begin >= 0 else []
                told += [line] if line else []
                begin = -1
        return "; ".join(told)

    def rows(self) -> int:
        count: int = self.said.evaluate("(it) => it.childElementCount")
        return count


def test_all_of_each_burst_is_shown(far: FarOwner, let_in: Let) -> None:
    printing = Printing(far, let_in())
    for _ in range(5):
        expect(printing.said).to_contain_text(printing.print(400))
    assert printing.shown() == "0-2000"


def test_where_lines_are_left_out_a_row_says_so_and_leads_to_them(far: FarOwner, let_in: Let) -> None:
    page = let_in()
    printing = Printing(far, page)
    expect(printing.said).to_contain_text(printing.print(3000))
    assert printing.shown() == "0-0; 2800 lines are not shown here. Show them; 2801-3000"
    expect(printing.said).to_contain_text(printing.print(300))
    assert printing.shown() == "0-0; 2800 lines are not shown here. Show them; 2801-3300"
    page.get_by_role("link", name="Show them").click()
    expect(page.get_by_role("heading", name="attempt 1")).to_be_visible()
    assert printing.shown().startswith("1-")


def test_who_was_without_network_is_told_that_lines_are_missing(far: FarOwner, let_in: Let) -> None:
    page = let_in()
    printing = Printing(far, page)
    page.context.set_offline(True)
    last = printing.print(60_000, chunk=9001)
    expect(page.locator("#link")).to_have_text(re.compile("stale since"))
    page.context.set_offline(False)
    expect(printing.said).to_contain_text(last)
    first, gap, end = printing.shown().split("; ")
    assert (first, gap) == ("0-0", "Lines are not shown here. Show them")
    assert re.fullmatch(r"\d+-60000", end)


def test_a_page_that_is_open_for_long_does_not_grow(far: FarOwner, let_in: Let) -> None:
    printing = Printing(far, let_in())
    for _ in range(4):
        expect(printing.said).to_contain_text(printing.print(600, "stderr"))
        assert printing.rows() <= ROWS_MAX
    shown = printing.shown()
    assert re.fullmatch(r"Earlier lines are not shown here\. From its beginning; 14\d\d-2400", shown), shown
    expect(printing.said.get_by_role("link", name="From its beginning")).to_have_attribute(
        "href", re.compile(r"/transcript\?attempt=1$")
    )


def test_who_reads_is_not_sent_more_than_a_page_can_hold(far: FarOwner, let_in: Let) -> None:
    page = let_in()
    printing = Printing(far, page)
    page.get_by_role("button", name="Follow").click()
    for _ in range(5):
        last = printing.print(600, "stderr")
        expect(printing.said).to_contain_text(re.compile(f"{re.escape(last)}|More has come"))
    expect(printing.said).to_contain_text("More has come, and is shown once you follow.")
    assert printing.rows() < HELD_ROWS_MAX
    assert re.fullmatch(r"0-\d+; More has come, and is shown once you follow\. Show it", printing.shown())
    page.get_by_role("button", name="Follow").click()
    expect(printing.said).to_contain_text(last)
    expect(printing.said).not_to_contain_text("More has come")
    assert printing.rows() <= ROWS_MAX
    assert printing.shown().endswith("-3000")
