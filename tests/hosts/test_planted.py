"""Files of Muster's in an attempt's folder that the agent has replaced by something else."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from muster.hosts.plain_files import cut_plain, read_plain, replace_plain
from muster.hosts.process import kill_recorded


@pytest.mark.parametrize("what", ["link", "pipe", "folder", "gone"])
def test_only_ordinary_files_are_read_and_cut(tmp_path: Path, what: str) -> None:
    (tmp_path / "mine").write_bytes(b"mine" * 10)
    path = tmp_path / "there"
    make = {
        "link": lambda: path.symlink_to(tmp_path / "mine"),
        "pipe": lambda: os.mkfifo(path),
        "folder": path.mkdir,
        "gone": lambda: None,
    }
    make[what]()
    for call in (lambda: read_plain(path, 100), lambda: cut_plain(path, 1)):
        with pytest.raises(OSError):
            call()
    assert (tmp_path / "mine").stat().st_size == 40


def test_what_is_written_is_new_and_private(tmp_path: Path) -> None:
    path, mine = tmp_path / "there", tmp_path / "mine"
    mine.write_text("mine")
    path.symlink_to(mine)
    (tmp_path / "there.new").symlink_to(mine)
    replace_plain(path, b"new")
    assert (read_plain(path, 2), read_plain(path, 100), mine.read_text()) == (b"ne", b"new", "mine")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    cut_plain(path, 1)
    cut_plain(path, 2)
    assert path.read_bytes() == b"n"


def test_a_record_that_an_agent_has_made_a_pipe_holds_nobody_up(hostiles, caplog):
    os.mkfifo(hostiles.folder().path / "pids")
    assert kill_recorded(hostiles.tmp_path / "attempts", hostiles.host) == 0
    assert "cannot read" in caplog.text


def test_a_record_is_not_written_where_a_link_leads(hostiles):
    mine = hostiles.tmp_path / "mine"
    mine.write_text("mine")
    (hostiles.folder().path / "pids.new").symlink_to(mine)
    (hostiles.folder().path / "pids").symlink_to(mine)
    process = hostiles.start("sleep", hostiles.token)
    assert not (hostiles.folder().path / "pids").is_symlink()
    process.kill()
    assert mine.read_text() == "mine"
