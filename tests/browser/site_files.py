"""What the pages of a built site load, and where their links lead."""

from __future__ import annotations

import re
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "object": "data"}
_STYLE = re.compile(r"url\(\s*[\"']?([^\"')]+)|@import\s+[\"']([^\"']+)")


class SitePage(HTMLParser):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        text = path.read_text("utf-8")
        self.feed(text)
        self.loads += styles(re.sub(r"(?s)<(code|script)\b.*?</\1>", "", text))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        self.ids.update({given.get("id", ""), given.get("name", "")} - {""})
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag == "link":
            self.loads.append(given["href"])
        if _LOADED.get(tag) in given:
            self.loads.append(given[_LOADED[tag]])


def styles(text: str) -> list[str]:
    """What a stylesheet loads, or a page in its attributes."""
    found = [one or other for one, other in _STYLE.findall(text)]
    return [one for one in found if not one.startswith(("data:", "#"))]


def wrong_in(site: Path) -> list[str]:
    """Links that lead nowhere, and what would be asked of another host."""
    page = cache(SitePage)
    wrong = []
    for path in sorted(site.rglob("*.html")):
        found = page(path)
        wrong += [f"{path.name} loads {one}" for one in found.loads if not _is_there(site, path, one)]
        for link in found.links:
            where = urlsplit(link)
            if where.scheme in {"http", "https", "mailto"}:
                continue
            aimed = _aimed(site, path, where.path)
            if not aimed.is_file():
                wrong.append(f"{path.name} leads to {link}, which is not there")
            elif (
                where.fragment and aimed.suffix == ".html" and unquote(where.fragment) not in page(aimed).ids
            ):
                wrong.append(f"{path.name} leads to {link}, and there is no such place")
    for path in sorted(site.rglob("*.css")):
        loads = styles(path.read_text("utf-8"))
        wrong += [f"{path.name} loads {one}" for one in loads if not _is_there(site, path, one)]
    return wrong


def _is_there(site: Path, path: Path, address: str) -> bool:
    where = urlsplit(address)
    return not (where.scheme or where.netloc) and _aimed(site, path, where.path).is_file()


def _aimed(site: Path, page: Path, path: str) -> Path:
    """The error page is shown at any address, so that its own begin at the root."""
    if not path:
        return page
    return site / unquote(path).lstrip("/") if page.name == "404.html" else page.parent / unquote(path)
