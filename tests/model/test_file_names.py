"""Names of files that are not UTF-8, in words."""

from __future__ import annotations

import os
import subprocess

import pytest

from muster.model.file_names import in_shell, in_words, readable

NAMES = [b"caf\351.txt", b'a"\\b\351', b"\303\251\351", b"it's\t\n\x01\377", b"\200"]


def test_a_name_in_utf8_stays_as_it_is() -> None:
    for name in ("a.txt", "caf\u00e9.txt", 'with "quotes"', "", "\u732b/\U0001f600"):
        assert in_words(name) == readable(name) == name
    assert in_shell("a b") == "'a b'" and in_shell("a.txt") == "a.txt"


@pytest.mark.parametrize("name", NAMES)
def test_any_other_is_quoted_as_git_does_it(tmp_path, name: bytes) -> None:
    (tmp_path / os.fsdecode(name)).touch()
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    listed = subprocess.run(["git", "ls-files", "-o"], cwd=tmp_path, capture_output=True, check=True)
    assert in_words(os.fsdecode(name)) == listed.stdout.decode().strip()


@pytest.mark.parametrize("name", NAMES)
def test_a_shell_takes_it_back(name: bytes) -> None:
    said = subprocess.run(
        ["bash", "-c", f"printf %s {in_shell(os.fsdecode(name))}"], capture_output=True, check=True
    )
    assert said.stdout == name


def test_text_around_it_stays() -> None:
    text = os.fsdecode(b"error: caf\351.txt: ") + "caf\u00e9"
    assert readable(text) == "error: caf\\351.txt: caf\u00e9"
    assert readable("\ud83d alone") == "\\355\\240\\275 alone"
    readable(text).encode()
