"""`muster webhook add`: an address that nothing can be sent to is refused at once, or warned of."""

from __future__ import annotations

import json
from pathlib import Path

from muster.cli.webhook import use_of
from muster_command import run_muster as muster


def test_where_nothing_would_be_sent_nothing_is_added(tmp_path: Path) -> None:
    (tmp_path / "muster.toml").touch()
    for url, why in (("http://example.org/x", "is not https"), ("https://10.0.0.1/x", "private network")):
        refused = muster(tmp_path, "webhook", "add", url)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert why in refused.stderr and "webhooks.private = true" in refused.stderr
    for url, why in (("https://example.org:0/x", "names port 0"), ("https://example.org/x#y", "a fragment")):
        refused = muster(tmp_path, "webhook", "add", url)
        assert refused.returncode == 2 and why in refused.stderr, refused.stderr
    assert "0 webhooks" in muster(tmp_path, "webhook", "list").stdout
    (tmp_path / "muster.toml").write_text("[webhooks]\nprivate = true\n")
    assert muster(tmp_path, "webhook", "add", "http://127.0.0.1:9/x").returncode == 0


def test_a_name_without_an_address_is_added_with_a_warning(tmp_path: Path) -> None:
    (tmp_path / "muster.toml").touch()
    added = muster(tmp_path, "webhook", "add", "https://nobody.invalid/x", "--json")
    assert added.returncode == 0 and "nobody.invalid has no address now" in added.stderr
    assert "nobody.invalid has no address now" in json.loads(added.stdout)["warning"]


def test_one_that_fails_is_said_to_be_in_use_still() -> None:
    assert use_of({"disabled": "", "failures": 0}) == "in use"
    assert use_of({"disabled": "", "failures": 7}) == "in use, failed 7 times in a row"
    assert use_of({"disabled": "its receiver wants no more (410)", "failures": 7}).startswith("disabled: its")
