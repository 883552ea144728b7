"""Links that can be clicked, and only where that is wanted."""

from __future__ import annotations

import io

import pytest

from muster.cli.output import Screen

HOSTILE = "/tmp/a\x1b]0;owned\x07 b"


class Tty(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("location", "target"),
    [
        ("/tmp/dist/report 1.html", "file:///tmp/dist/report%201.html"),
        ("https://example.org/a?b=c#d", "https://example.org/a?b=c#d"),
        (HOSTILE, "file:///tmp/a%1B%5D0%3Bowned%07%20b"),
    ],
)
def test_a_terminal_gets_a_link_whose_target_is_quoted(location, target):
    shown = Screen("always", Tty()).link(location)
    assert shown.startswith(f"\x1b]8;;{target}\x1b\\")
    assert shown.endswith("\x1b]8;;\x1b\\")
    assert shown.count("\x1b") == 4


@pytest.mark.parametrize(
    "screen", [Screen("always", io.StringIO()), Screen("never", Tty())], ids=["a pipe", "no colour"]
)
def test_elsewhere_it_is_text(screen):
    assert screen.link("/tmp/report.html") == "/tmp/report.html"
    assert "\x1b" not in screen.link(HOSTILE)


def test_what_is_no_address_is_text():
    assert Screen("always", Tty()).link("javascript:alert(1)") == "javascript:alert(1)"
