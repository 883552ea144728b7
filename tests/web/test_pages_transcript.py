"""A long transcript costs a page no more than a short one, and no line of it is missing without a word."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from html import unescape
from typing import Any

import pytest
from msgspec.structs import force_setattr
from over_network import OPENLY, listening
from web_site import Site

from muster.agents import acp
from muster.agents.transcript import Reader as Lines
from muster.stores.stored_reads import StoredReads
from muster.web.pages import transcript, transcript_rows
from page_reader import Reader

LINES, CHUNK = 20_000, 60_000


@pytest.fixture
def reader(site: Site) -> Iterator[Reader]:
    """Of a server without login."""
    with listening(site, OPENLY) as port:
        yield Reader(port)


class Printing:
    """An attempt that prints, and its pages."""

    def __init__(self, site: Site, reader: Reader) -> None:
        site.enqueue("a")
        site.register()
        (self._job,) = site.started()
        self._site, self._reader = site, reader
        self._offsets = {"stdout": 0, "stderr": 0}
        self.number: int = self._job["taskId"]
        self.shown = ""
        """What a page that is open shows."""

    def skip(self, size: int, stream: str = "stdout") -> None:
        self._offsets[stream] += size

    def print(self, data: bytes, stream: str = "stdout", chunk: int = CHUNK) -> None:
        for at in range(0, len(data), chunk):
            part = data[at : at + chunk]
            told = {
                "stream": stream,
                "offset": self._offsets[stream],
                "data": base64.b64encode(part).decode(),
            }
            self._site.post("/worker/v1/log", self._site.of(self._job) | told)
            self._offsets[stream] += len(part)

    def news(self) -> list[str]:
        """The rows that such a page is sent; of a page that is new the end."""
        headers = {"Muster-Shown": self.shown} if self.shown else {}
        text = self._reader.ask("GET", f"/tasks/{self.number}", **headers).text
        after, following = re.findall(r'data-after="([^"]*)" data-next="([^"]+)"', text)[0]
        assert unescape(after) == self.shown
        self.shown = unescape(following)
        return rows(text)

    def pages(self, target: str = "") -> list[list[str]]:
        """The rows of each, from its beginning on."""
        found: list[list[str]] = []
        while True:
            text = self._reader.get(target or f"/tasks/{self.number}/transcript").text
            assert len(text) < 3_000_000
            found.append(rows(text))
            following = re.search(r'rel="next" href="([^"]+)"', text)
            if following is None:
                return found
            target = unescape(following[1])

    def whole(self) -> list[str]:
        return [line for page in self.pages() for line in lines(page)]


@pytest.fixture
def printing(site: Site, reader: Reader) -> Printing:
    return Printing(site, reader)


def rows(text: str) -> list[str]:
    listed = re.search(r'<ol class="transcript.*?</ol>', text, re.DOTALL)
    return re.findall(r"<li .*?</li>", listed[0], re.DOTALL) if listed else []


def lines(listed: list[str]) -> list[str]:
    """What was printed, without the rows that say what is missing."""
    texts = [re.sub("<[^>]+>", "", row) for row in listed if 'class="entry' in row]
    return [line for text in texts for line in unescape(text).split("\n")]


def gaps(listed: list[str]) -> list[str]:
    return [re.sub("<[^>]+>", "", row) for row in listed if 'class="gap"' in row]


def numbered(first: int, last: int) -> list[str]:
    return [f"line {number}" for number in range(first, last)]


def bytes_of(told: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in told).encode()


def test_the_end_is_on_the_page_and_all_of_it_on_the_next_ones(printing: Printing, reader: Reader) -> None:
    said = [f"line {number}: some words that an agent has said" for number in range(LINES)]
    printing.print(bytes_of(said))
    shown = lines(printing.news())
    assert shown[-1] == said[-1]
    assert transcript.ROWS_MAX - transcript_rows.TOGETHER < len(shown) <= transcript.ROWS_MAX
    assert "From its beginning" in reader.get(f"/tasks/{printing.number}").text
    assert len(printing.pages()) > 3
    assert printing.whole() == said


@pytest.mark.parametrize("chunk", [977, 8 << 10, 40_001])
def test_no_line_is_cut_where_a_part_ends(printing: Printing, chunk: int) -> None:
    said = [f"{number} {'äöü€🙂' * (number % 40)}." for number in range(3000)]
    printing.print(bytes_of(said) + "and one that has not ended: €".encode(), chunk=chunk)
    assert len(printing.pages()) > 3
    assert printing.whole() == [*said, "and one that has not ended: €"]


def test_a_line_that_is_longer_than_a_part_is_on_the_page_of_its_end(printing: Printing) -> None:
    long = "€" * 300_000
    printing.print(bytes_of(["before", long, "after"]), chunk=10_001)
    most = transcript_rows.TEXT_CHARS_MAX
    cut = f"{long[:most]}{len(long) - most} more characters: muster logs"
    pages = printing.pages()
    assert [line for page in pages for line in lines(page)] == ["before", cut, "after"]
    assert all(pages), "no page is empty"


def test_lines_of_one_stream_are_whole_while_the_other_one_is_in_the_middle_of_one(
    printing: Printing,
) -> None:
    printing.print(b"loading", "stderr")
    said = numbered(0, 20_000)
    printing.print(bytes_of(said[:10_001])[:-4], chunk=5000)
    printing.print(b" ... done\nnext", "stderr")
    printing.print(bytes_of(said)[len(bytes_of(said[:10_001])) - 4 :], chunk=5000)
    printing.print(b" one\n", "stderr")
    whole = printing.whole()
    assert [line for line in whole if line.startswith("line")] == said
    assert [line for line in whole if not line.startswith("line")] == [
        "stderr: loading ... done",
        "stderr: next one",
    ]


def test_a_part_from_anywhere_begins_with_a_whole_line(printing: Printing) -> None:
    said = numbered(0, 5000)
    printing.print(bytes_of(said), chunk=1001)
    for place in (1, 7, 40):
        found = [
            line
            for page in printing.pages(f"/tasks/{printing.number}/transcript?after={place}")
            for line in lines(page)
        ]
        assert len(found) < len(said)
        assert found == said[-len(found) :]


def test_an_open_page_is_sent_what_it_does_not_show(printing: Printing) -> None:
    printing.print(b"line 0\nli")
    assert lines(printing.news()) == ["line 0", "li"]
    said = numbered(1, 800)
    printing.print(bytes_of(said)[2:] + b"half ")
    assert (told := printing.news()) and lines(told) == [*said, "half "]
    assert gaps(told) == []
    assert lines(printing.news()) == ["half "]
    printing.print(b"a line\n")
    assert lines(printing.news()) == ["half a line"]
    assert printing.news() == []


def test_a_page_that_was_away_for_a_while_is_sent_all_the_small_parts(printing: Printing) -> None:
    printing.print(b"line 0\n")
    printing.news()
    said = numbered(1, 300)
    for line in said:
        printing.print(f"{line}\n".encode())
    told = printing.news()
    assert (lines(told), gaps(told)) == (said, [])


def part(text: str) -> bytes:
    update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
    return (
        json.dumps({"jsonrpc": "2.0", "method": "session/update", "params": {"update": update}}).encode()
        + b"\n"
    )


def test_a_message_in_parts_is_one_wherever_it_is_read_on(printing: Printing, site: Site) -> None:
    force_setattr(site.backend, "reader", lambda *_: Lines((acp.entries,)))
    words = [f"word{number} " for number in range(3000)]
    printing.print(b"".join(map(part, words[:10])))
    assert printing.whole() == ["".join(words[:10])]
    assert lines(printing.news()) == ["".join(words[:10])]
    printing.print(b"".join(map(part, words[10:50])))
    assert lines(printing.news()) == ["".join(words[:50])], "the row takes the place of the one before"
    printing.print(b"".join(map(part, words[50:])), chunk=5000)
    most = transcript_rows.TEXT_CHARS_MAX
    cut = f"{''.join(words)[:most]}{len(''.join(words)) - most} more characters: muster logs"
    printing.print(b"plain words\n")
    assert printing.whole() == [cut, "plain words"]


def test_what_an_open_page_is_not_sent_is_counted_and_led_to(printing: Printing) -> None:
    printing.print(b"line 0\nli")
    printing.news()
    said = numbered(1, 5000)
    printing.print(bytes_of(said)[2:])
    told = printing.news()
    shown = lines(told)
    assert shown == said[-len(shown) :]
    assert len(shown) <= transcript.ROWS_MAX
    assert gaps(told[:1]) == [f"{len(said) - len(shown)} lines are not shown here. Show them"]
    found = re.search('href="([^"]+)"', told[0])
    assert found is not None
    assert [line for page in printing.pages(unescape(found[1])) for line in lines(page)] == said


@pytest.mark.parametrize("chunk", [3001, 60_000])
def test_a_page_that_was_away_for_long_says_that_lines_are_missing(printing: Printing, chunk: int) -> None:
    printing.print(bytes_of(numbered(0, 10)))
    printing.news()
    said = numbered(10, 60_000)
    printing.print(bytes_of(said), chunk=chunk)
    told = printing.news()
    shown = lines(told)
    assert shown == said[-len(shown) :], "the first one is whole as well"
    assert len(shown) <= transcript.ROWS_MAX
    assert gaps(told[:1]) == ["Lines are not shown here. Show them"]
    found = re.search('href="([^"]+)"', told[0])
    assert found is not None
    assert [line for page in printing.pages(unescape(found[1])) for line in lines(page)] == said
    printing.print(b"and on\n")
    assert lines(printing.news()) == ["and on"]


def test_what_the_store_does_not_keep_is_told(printing: Printing) -> None:
    printing.print(b"the beginning\nof a li")
    printing.news()
    printing.skip(5000)
    printing.print(b"ne\nthe end\n")
    told = printing.news()
    assert lines(told) == ["of a li", "ne", "the end"]
    assert gaps(told) == ["5000 bytes of stdout are not kept here."]
    assert 'class="gap"' in told[1], "where they would stand"
    (whole,) = printing.pages()
    assert gaps(whole) == gaps(told)


def test_a_first_word_to_the_other_stream_does_not_hide_that_there_is_more(
    printing: Printing, reader: Reader
) -> None:
    printing.print(bytes_of(numbered(0, 5000)))
    printing.print((b"a warning".ljust(400, b".") + b"\n") * 100, "stderr")
    assert "From its beginning" in reader.get(f"/tasks/{printing.number}").text


def test_whoever_shows_something_else_is_sent_the_end(printing: Printing, reader: Reader) -> None:
    printing.print(bytes_of(numbered(0, 10)))
    printing.news()
    strange: list[Any] = [printing.shown.replace("attempt=1", "attempt=2"), "nonsense", f"{printing.shown}~x"]
    for shown in strange:
        text = reader.ask("GET", f"/tasks/{printing.number}", **{"Muster-Shown": shown}).text
        assert lines(rows(text)) == numbered(0, 10)
        assert 'data-after=""' in text
    text = reader.get(f"/tasks/{printing.number}/transcript?open=stdout.x").text
    assert lines(rows(text)) == numbered(0, 10)


def test_an_address_does_not_make_the_server_read_all_that_was_printed(
    printing: Printing, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    printing.print(b"".join(b"line %d\n" % n for n in range(LINES)))
    monkeypatch.setattr(transcript, "OPEN_BYTES_MAX", 10_000)
    asked: list[int] = []
    read = StoredReads.log_part

    async def log_part(self: StoredReads, task_id: int, epoch: int, *where: Any) -> Any:
        asked.append(where[2] - where[1])
        return await read(self, task_id, epoch, *where)

    monkeypatch.setattr(StoredReads, "log_part", log_part)
    for end in (20_000, 10**17):
        shown = reader.get(f"/tasks/{printing.number}/transcript?attempt=1&after=1&open=stdout.0.{end}")
        assert shown.status == 200
    assert asked == []
    assert printing.whole()[-1] == f"line {LINES - 1}" and max(asked) < 500_000


@pytest.mark.parametrize("kept", [True, False])
def test_an_open_line_that_cannot_be_read_again_leaves_a_row(
    printing: Printing, monkeypatch: pytest.MonkeyPatch, kept: bool
) -> None:
    printing.print(b"line 0\n" + b"x" * 20_000)
    assert gaps(printing.news()) == []
    if kept:
        monkeypatch.setattr(transcript, "OPEN_BYTES_MAX", 10_000)
    else:

        async def log_part(*_: Any) -> list[Any]:
            return []

        monkeypatch.setattr(StoredReads, "log_part", log_part)
    printing.print(b"y\nline 2\n")
    told = printing.news()
    assert gaps(told) == ["The beginning of what comes next on stdout is not shown here."]
    assert lines(told)[-1] == "line 2"
    assert gaps(printing.news()) == [], "it is said once"
