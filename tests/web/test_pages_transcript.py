"""A long transcript costs a page no more than a short one."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator

import pytest
from over_network import OPENLY, listening
from web_site import Site

from muster.web.pages import transcript
from page_reader import Reader

LINES, CHUNK = 20_000, 60_000


@pytest.fixture
def reader(site: Site) -> Iterator[Reader]:
    """Of a server without login."""
    with listening(site, OPENLY) as port:
        yield Reader(port)


def test_the_end_is_on_the_page_and_all_of_it_on_the_next_ones(site: Site, reader: Reader) -> None:
    site.enqueue("a")
    site.register()
    (job,) = site.started()
    data = b"".join(b"line %d: some words that an agent has said\n" % number for number in range(LINES))
    for offset in range(0, len(data), CHUNK):
        part = base64.b64encode(data[offset : offset + CHUNK]).decode()
        site.post("/worker/v1/log", site.of(job) | {"stream": "stdout", "offset": offset, "data": part})
    number = job["taskId"]
    shown = reader.get(f"/tasks/{number}").text
    said = re.findall(r"line (\d+): some words", shown)
    assert said[-1] == str(LINES - 1)
    assert transcript.ROWS_MAX - transcript.TOGETHER < len(said) <= transcript.ROWS_MAX
    assert "From its beginning" in shown
    page, seen, pages = reader.get(f"/tasks/{number}/transcript"), 0, 0
    while True:
        pages += 1
        assert len(page.text) < 3_000_000
        seen += len(re.findall(r"line \d+: some words", page.text))
        following = re.search(r'rel="next" href="([^"]+)"', page.text)
        if following is None:
            break
        page = reader.get(following[1].replace("&amp;", "&"))
    assert pages > 3 and abs(seen - LINES) <= pages, "a line that is cut by the end of a part is shown in two"
