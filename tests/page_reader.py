"""A browser without scripts: it follows redirects, keeps cookies and sends forms."""

from __future__ import annotations

import re
from contextlib import closing
from html.parser import HTMLParser
from http.client import HTTPConnection
from typing import Any, NamedTuple
from urllib.parse import urlencode

from patience import PATIENCE_S

_DONE = re.compile(r"(\bdone=[a-z-]+)\.[0-9]{13}\.[0-9a-f]{32}")
"""What seals a note for this browser alone."""


class Form(NamedTuple):
    action: str
    method: str
    fields: dict[str, str]
    label: str


class _Forms(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[Form] = []
        self._at: dict[str, Any] | None = None
        self._in_button = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self._at = {"action": given.get("action", ""), "method": given.get("method", "get")}
            self._at |= {"fields": {}, "label": ""}
        elif self._at is not None and tag == "input" and given.get("type") == "hidden":
            self._at["fields"][given["name"]] = given.get("value", "")
        elif tag == "button":
            self._in_button = True

    def handle_data(self, data: str) -> None:
        if self._at is not None and self._in_button and not self._at["label"]:
            self._at["label"] = data.strip()

    def handle_endtag(self, tag: str) -> None:
        if tag == "button":
            self._in_button = False
        elif tag == "form" and self._at is not None:
            self.found.append(Form(**self._at))
            self._at = None


class Shown(NamedTuple):
    status: int
    headers: dict[str, str]
    text: str
    path: str
    """As it was asked for, but for the seal of a note."""

    @property
    def forms(self) -> list[Form]:
        parser = _Forms()
        parser.feed(self.text)
        return parser.found

    def form(self, label: str) -> Form:
        (found,) = [form for form in self.forms if form.label == label]
        return found

    @property
    def labels(self) -> set[str]:
        return {form.label for form in self.forms}


class Reader:
    def __init__(self, port: int, cookie: str = "") -> None:
        self.port = port
        self.host = f"127.0.0.1:{port}"
        self.cookie = cookie

    def ask(self, method: str, target: str, body: bytes = b"", **headers: str) -> Shown:
        """One request, with the cookie."""
        given = {"Host": self.host, "Accept": "text/html", **headers}
        if self.cookie and "Cookie" not in given:
            given["Cookie"] = self.cookie
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)) as connection:
            connection.request(method, target, body, given)
            answer = connection.getresponse()
            told = {name.lower(): value for name, value in answer.getheaders()}
            text = answer.read().decode()
        if set_cookie := told.get("set-cookie", ""):
            self.cookie = set_cookie.partition(";")[0]
        return Shown(answer.status, told, text, _DONE.sub(r"\1", target))

    def get(self, target: str) -> Shown:
        """Follows redirects."""
        shown = self.ask("GET", target)
        return self.get(shown.headers["location"]) if shown.status == 303 else shown

    def send(self, form: Form, **fields: str) -> Shown:
        """As its button does, and follows where that leads."""
        assert form.method == "post"
        shown = self.post(form.action, {**form.fields, **fields})
        return self.get(shown.headers["location"]) if shown.status == 303 else shown

    def post(self, target: str, fields: dict[str, str], **headers: str) -> Shown:
        usual = {"Content-Type": "application/x-www-form-urlencoded", "Origin": f"http://{self.host}"}
        return self.ask("POST", target, urlencode(fields).encode(), **{**usual, **headers})
