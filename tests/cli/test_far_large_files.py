"""Files that git-lfs keeps beside a repository, in the work of workers on other hosts."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from git_projects import commit_first, git
from test_far_git import add, on_branch
from test_remote_worker import Served, elsewhere, served, working
from test_run import folder as plain_folder
from test_run import until

__all__ = ["elsewhere", "plain_folder", "served"]

CLEAN = """\
#!/bin/sh
cat > {here}/$$.in
if head -c 24 {here}/$$.in | grep -q '^version https://git-lfs'; then cat {here}/$$.in; exit; fi
digest=$(sha256sum < {here}/$$.in | cut -c1-64)
kept=$(git rev-parse --path-format=absolute --git-common-dir)/lfs/objects
kept=$kept/$(echo $digest | cut -c1-2)/$(echo $digest | cut -c3-4)
mkdir -p $kept
size=$(wc -c < {here}/$$.in)
mv {here}/$$.in $kept/$digest
printf 'version https://git-lfs.github.com/spec/v1\\noid sha256:%s\\nsize %d\\n' $digest $size
"""
SMUDGE = """\
#!/bin/sh
pointer=$(cat)
digest=$(echo "$pointer" | sed -n 's/^oid sha256://p')
kept=$(git rev-parse --path-format=absolute --git-common-dir)/lfs/objects
file=$kept/$(echo $digest | cut -c1-2)/$(echo $digest | cut -c3-4)/$digest
if [ -e $file ]; then exec cat $file; fi
if [ "$(git config lfs.skipdownloaderrors)" = true ]; then echo "$pointer"; exit; fi
echo "Smudge error: batch request: missing protocol" >&2; exit 2
"""
"""As far as git-lfs is asked here, by another name: it may be installed or not."""


def filters(folder: Path) -> str:
    """Settings of git, such as `git lfs install` makes."""
    for name, text in (("clean", CLEAN), ("smudge", SMUDGE)):
        (folder / name).write_text(text.format(here=folder))
        (folder / name).chmod(0o700)
    return f'[filter "large"]\nclean = {folder}/clean\nsmudge = {folder}/smudge\nrequired = true\n'


@pytest.fixture
def folder(plain_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    (plain_folder / "README").write_text("first\n")
    (plain_folder / ".gitattributes").write_text("*.lfs filter=large -text\n")
    commit_first(plain_folder, "README", "muster.toml")
    with (plain_folder / ".git" / "config").open("a") as settings:
        settings.write(filters(tmp_path_factory.mktemp("filters")))
        settings.write("[user]\nname = Ann\nemail = ann@example.com\n")
    (plain_folder / "old.lfs").write_bytes(b"old" * 1000)
    git(plain_folder, "add", ".gitattributes", "old.lfs")
    git(plain_folder, "commit", "-qm", "large")
    return plain_folder


@pytest.fixture
def host(elsewhere: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With git-lfs."""
    (elsewhere / ".gitconfig").write_text(filters(tmp_path_factory.mktemp("filters")))
    return elsewhere


def kept(folder: Path, data: bytes) -> Path:
    digest = hashlib.sha256(data).hexdigest()
    return folder / ".git" / "lfs" / "objects" / digest[:2] / digest[2:4] / digest


def test_a_host_without_the_large_files_has_pointers_that_its_setup_fetches(
    served: Served, host: Path
) -> None:
    old = kept(served.folder, b"old" * 1000)
    setup = f"cp {old} old.lfs && git add old.lfs"
    with working(host, served, served.worker):
        until(served.far, "the worker is known")
        add(served, "t", "grep -q '^version https://git-lfs' old.lfs; echo $? > pointer", "--retries", "0")
        until(lambda: served.status("p/t") == "COMPLETED", "its tree is there")
        assert on_branch(served, "pointer") == "0"
        assert git(served.folder, "diff", "--name-only", "HEAD", "muster/plan/p") == "pointer"
    (host / "muster.toml").write_text(
        f"{(host / 'muster.toml').read_text()}[git]\nsetup = {json.dumps(setup)}\n"
    )
    with working(host, served, served.worker):
        until(served.far, "the next one is known")
        add(served, "u", "head -c 6 old.lfs > whole", "--retries", "0")
        until(lambda: served.status("p/u") == "COMPLETED", "its tree is set up")
    assert on_branch(served, "whole") == "oldold"
    changed = git(served.folder, "diff", "--name-only", "HEAD", "muster/plan/p").split()
    assert changed == ["pointer", "whole"], "what is no change of its agent's is published by nobody"


@pytest.mark.promise("S18")
def test_work_with_large_files_is_done_once_the_server_has_them(served: Served, host: Path) -> None:
    with working(host, served, served.worker):
        until(served.far, "the worker is known")
        add(served, "t", f"head -c 1500000 /dev/urandom > new.lfs; cp new.lfs {host}/copy")
        until(lambda: served.status("p/t") == "COMPLETED", "it is done")
    data = (host / "copy").read_bytes()
    assert on_branch(served, "new.lfs").startswith("version https://git-lfs"), "a pointer is in git"
    assert kept(served.folder, data).read_bytes() == data
    served.said("plan", "merge", "p")
    assert (served.folder / "new.lfs").read_bytes() == data
