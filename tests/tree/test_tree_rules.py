"""Each rule of the tree fires on a small tree that breaks it, and only there."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import tree_files
import tree_imports

MARK = "TO" + "DO"
WORK = "/wo" + "rk/main"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write(tmp_path / "muster", {"__init__.py": "", "model/__init__.py": "", "engine/__init__.py": ""})


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root


def one(violations: list[str], *parts: str) -> None:
    assert len(violations) == 1, violations
    assert [part for part in parts if part not in violations[0]] == [], violations[0]


@pytest.mark.parametrize(
    "line",
    [
        "import muster.engine.loop",
        "from muster.engine import loop",
        "from muster.engine.loop import run",
        "from ..engine import loop",
        "from ..engine.loop import run",
        "def f():\n    from muster.engine import loop",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import muster.engine.loop",
        "import importlib\nimportlib.import_module('muster.engine.loop')",
        "__import__('muster.engine.loop')",
        "import muster.engine.not_written_yet",
    ],
)
def test_an_import_upwards_is_found(source: Path, line: str) -> None:
    write(source, {"engine/loop.py": "run = 1", "model/task.py": line})
    graph = tree_imports.edges(source)
    one(tree_imports.floor_violations(graph), "muster.model.task", "muster.engine", "lower floor")


def test_a_sibling_is_no_lower_floor(source: Path) -> None:
    write(source, {"stores/db.py": "", "engine/loop.py": "import muster.stores.db"})
    one(tree_imports.floor_violations(tree_imports.edges(source)), "muster.stores.db")


def test_downwards_within_and_the_root_are_fine(source: Path) -> None:
    write(
        source,
        {
            "__init__.py": "__version__ = '1'",
            "model/task.py": "from muster import __version__\nfrom muster.model import other",
            "model/other.py": "import datetime",
            "engine/loop.py": "from ..model import task\nfrom . import helper",
            "engine/helper.py": "",
        },
    )
    graph = tree_imports.edges(source)
    assert tree_imports.floor_violations(graph) == []
    assert tree_imports.unknown_packages(graph) == []
    assert tree_imports.cycles(graph) == []


def test_the_root_may_not_import_the_rest(source: Path) -> None:
    write(source, {"__init__.py": "import muster.model"})
    one(tree_imports.floor_violations(tree_imports.edges(source)), "muster.model")


def test_a_class_name_that_stands_twice_is_found(source: Path) -> None:
    write(source, {"model/a.py": "class A: ...\nclass _B: ...", "engine/b.py": "class _B: ...\nclass C: ..."})
    assert tree_imports.classes_twice(source) == []
    write(source, {"engine/a.py": "class A: ..."})
    one(tree_imports.classes_twice(source), "class A stands in muster.engine.a and in muster.model.a")


def test_an_unknown_package_is_found(source: Path) -> None:
    write(source, {"utils/x.py": ""})
    one(tree_imports.unknown_packages(tree_imports.edges(source)), "'utils'", "FLOORS")


def test_a_cycle_is_found_through_functions(source: Path) -> None:
    write(
        source,
        {
            "engine/a.py": "from muster.engine import b",
            "engine/b.py": "def f():\n    import muster.engine.c",
            "engine/c.py": "from .a import x",
        },
    )
    one(
        tree_imports.cycles(tree_imports.edges(source)),
        "muster.engine.a -> muster.engine.b -> muster.engine.c",
    )


@pytest.mark.parametrize(
    "line",
    [
        "import time",
        "from random import choice",
        "import os.path",
        "from asyncio import sleep",
        "import threading",
        "import socket",
        "import uuid",
        "import secrets",
        "from pathlib import Path",
        "import pathlib",
        "def f():\n    import time",
        "import datetime\nx = datetime.datetime.now()",
        "from datetime import date\nx = date.today",
        "async def f(): ...",
        "x = open('y')",
    ],
)
def test_impurity_is_found(source: Path, line: str) -> None:
    write(source, {"model/task.py": line})
    one(tree_imports.impurities(source / "model"), "task.py", "pure")


def test_values_of_time_and_path_are_pure(source: Path) -> None:
    text = "from datetime import datetime\nfrom pathlib import PurePath\nx = datetime.fromisoformat\n"
    write(source, {"model/task.py": text})
    assert tree_imports.impurities(source / "model") == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import os", "imports os"),
        (
            "from pathlib import Path\ndef f(path: Path) -> str:\n    return path.read_text()",
            "calls read_text",
        ),
        ("async def f() -> int:\n    return 1", "async def f"),
    ],
)
def test_a_port_that_does_something_is_found(source: Path, text: str, reason: str) -> None:
    write(source, {"ports/files.py": text})
    one(tree_imports.impurities(source / "ports", promises=True), "files.py", reason)


def test_a_port_may_promise(source: Path) -> None:
    text = """
from pathlib import Path
class Files(Protocol):
    async def read(self, path: Path) -> bytes: ...
    async def write(self, path: Path) -> None:
        \"\"\"Synced.\"\"\"
"""
    write(source, {"ports/files.py": text})
    assert tree_imports.impurities(source / "ports", promises=True) == []


def test_a_third_party_package_out_of_its_place_is_found(source: Path) -> None:
    write(
        source,
        {
            "model/a.py": "import msgspec, json",
            "stores/a.py": "import apsw",
            "sdk/a.py": "import cronsim",
            "web/a.py": "import httptools, jinja2",
            "hosts/a.py": "import nacl, psutil, setproctitle, watchfiles",
            "config/a.py": "def f():\n    from yaml import load",
        },
    )
    assert tree_imports.foreign_violations(source) == []
    write(source, {"engine/a.py": "def f():\n    import apsw.ext", "web/a.py": "import jinja2, uvicorn"})
    found = tree_imports.foreign_violations(source)
    assert [text.partition(":")[0] for text in found] == [
        "muster.engine.a may not import apsw",
        "muster.web.a may not import uvicorn",
        "nobody imports httptools",
    ]


def test_who_names_the_engine_beside_the_composition_is_found(source: Path) -> None:
    write(source, {"engine/loop.py": "", "app/a.py": "import muster.engine.loop", "cli/a.py": ""})
    assert tree_imports.composition_violations(tree_imports.edges(source)) == []
    write(source, {"cli/a.py": "def f():\n    from muster.engine import loop"})
    one(tree_imports.composition_violations(tree_imports.edges(source)), "muster.cli.a", "muster.engine.loop")


def test_sizes_are_a_ratchet(tmp_path: Path) -> None:
    long = "class A:\n    def f(self):\n" + "        x = 1\n" * 60
    write(tmp_path, {"src/a.py": long, "src/b.sql": "--\n" * 501, "src/c.json": "1\n" * 900})
    measured = tree_files.sizes(tmp_path, ["src"])
    assert measured == {"src/a.py": 62, "src/a.py::A.f": 61, "src/b.sql": 501}

    violations = tree_files.size_violations(measured, {})
    assert [text.split(" has ")[0] for text in violations] == ["src/a.py::A.f", "src/b.sql"]
    exact = {"src/a.py::A.f": 61, "src/b.sql": 501}
    assert tree_files.size_violations(measured, exact) == []
    one(tree_files.size_violations(measured, exact | {"src/b.sql": 502}), "src/b.sql", "lower its entry")
    one(tree_files.size_violations(measured, exact | {"src/a.py": 62}), "src/a.py", "needs no exception")
    one(tree_files.size_violations(measured, exact | {"src/z.py": 600}), "src/z.py", "is gone")
    one(tree_files.size_violations(measured | {"src/b.sql": 502}, exact), "src/b.sql", "split it")


@pytest.mark.parametrize("line", [f"cd {WORK}", f'"{WORK}/x"', "/ro" + "ot/.cache", "/ho" + "me/ann/x"])
def test_a_path_of_one_machine_is_found(tmp_path: Path, line: str) -> None:
    page = write(tmp_path, {"a.md": f"fine\n{line}\n"}) / "a.md"
    one(tree_files.machine_paths(tmp_path, [page]), "a.md:2", "relative")


def test_parts_of_addresses_are_no_machine_paths(tmp_path: Path) -> None:
    text = "https://example.com/wo" + "rk/x ./wo" + "rk/x $HOME/x /api/v1/wo" + "rkers"
    page = write(tmp_path, {"a.md": text}) / "a.md"
    assert tree_files.machine_paths(tmp_path, [page]) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.py", f"x = 1  # {MARK} later"),
        ("a.py", f'"""{MARK}: later"""'),
        ("a.md", f"{MARK}(ann) later"),
        ("a.html", f"<!-- {MARK} later -->"),
        ("a.sql", f"-- FIX{'ME'}: later"),
    ],
)
def test_unfinished_work_is_found(tmp_path: Path, name: str, text: str) -> None:
    path = write(tmp_path, {name: text}) / name
    one(tree_files.leftovers(tmp_path, [path]), f"{name}:1", "finish it")


def test_a_status_of_that_name_is_no_mark(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": f'STATUS = "{MARK}"', "a.md": f"# {MARK} list", "a.png": "\0"})
    assert tree_files.leftovers(tmp_path, sorted(tmp_path.iterdir())) == []


def test_unused_sql_is_found(source: Path) -> None:
    write(
        source,
        {
            "stores/db.py": "load('sql', 'tasks.sql'); load_all('x/migrations')",
            "stores/sql/tasks.sql": "",
            "stores/sql/forgotten.sql": "",
            "stores/migrations/0001_first.sql": "",
        },
    )
    one(tree_files.unused_sql(source), "stores/sql/forgotten.sql", "delete it")


def test_a_lock_with_a_private_index_is_found() -> None:
    line = 'source = { registry = "https://%s/simple" }'
    assert tree_files.lock_violations(line % "pypi.org") == []
    one(tree_files.lock_violations(line % "mirror.example"), "mirror.example", "uv lock")
    one(tree_files.lock_violations('source = { path = "../x" }'), "../x")


@pytest.mark.parametrize("name", ["x-1.0-py3-none-any.whl", ".tool/ignore", "notes.bak"])
def test_a_file_that_strayed_in_is_found(tmp_path: Path, name: str) -> None:
    write(tmp_path, {name: "", "a.py": "", "run": "", ".ci/run": ""})
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    one(tree_files.strays(tmp_path, tree_files.repository_files(tmp_path)), name)


@pytest.mark.parametrize("target", ["gone.md", "docs", "#no-such", "b.md#no-such", "../outside.md"])
def test_a_dead_link_is_found(tmp_path: Path, target: str) -> None:
    root = write(tmp_path / "repo", {"a.md": f"# A\n\nsee [it]({target}) there\n", "b.md": "# B"})
    write(tmp_path, {"outside.md": ""})
    one(tree_files.broken_links(root, [root / "a.md"]), "a.md:3", target)


def test_links_that_lead_somewhere(tmp_path: Path) -> None:
    text = (
        "# The `run` file, twice\n## Same\n## Same\n"
        "[a](#the-run-file-twice) [b](#same-1) [c](docs/b.md#by-hand)\n"
        "[d](https://example.com/x) [e](mailto:a@example.com) `[f](gone)`\n"
        "```\n[g](gone)\n```\n[h]: docs/b.md\n"
        "![i](docs/b.md 'title') [![j](docs/b.md)](docs)\n"
    )
    root = write(tmp_path, {"a.md": text, "docs/b.md": '<a id="by-hand"></a>'})
    assert tree_files.broken_links(root, [root / "a.md"]) == []
    (root / "docs" / "b.md").unlink()
    assert len(tree_files.broken_links(root, [root / "a.md"])) == 4


def test_files_are_listed_with_and_without_git(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": "", ".gitignore": "b.py\n", "__pycache__/c.pyc": "", ".venv/d.py": ""})
    names = [path.relative_to(tmp_path).as_posix() for path in tree_files.repository_files(tmp_path)]
    assert names == [".gitignore", "a.py"]
    write(tmp_path, {"b.py": "", ".gitignore": "b.py\n__pycache__\n.venv\n"})
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    names = [path.relative_to(tmp_path).as_posix() for path in tree_files.repository_files(tmp_path)]
    assert names == [".gitignore", "a.py"]
