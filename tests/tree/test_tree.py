"""The tree tests itself: the rules that DESIGN part 5 and STYLE part 2 give to the whole repository."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest
import tree_files
import tree_imports
import tree_promises

from muster.web.app import RESOURCES, declared, pages

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "muster"

OVERSIZE: dict[str, int] = {}
"""Files over 500 lines and functions over 60 (`path`, `path::Class.function`), with their size: shrink it."""

HOT_PATH = (
    *("muster.cli.main", "muster.client.http", "muster.client.api"),
    *("muster.cli.plan", "muster.cli.task_actions", "muster.cli.report"),
    "muster.mcp.server",
)
DISTRIBUTION = {"nacl": "pynacl", "yaml": "pyyaml"}
"""Packages that are installed under another name."""
SLOW = ("asyncio", "ssl", "http", "msgspec", "apsw", "httptools")


def say(violations: list[str]) -> None:
    __tracebackhide__ = True
    if violations:
        pytest.fail("\n".join(violations), pytrace=False)


@pytest.fixture(scope="module")
def graph() -> tree_imports.Edges:
    return tree_imports.edges(SOURCE)


@pytest.fixture(scope="module")
def files() -> list[Path]:
    found = tree_files.repository_files(ROOT)
    assert ROOT / "pyproject.toml" in found, "the list of files is not that of this repository"
    return found


def test_imports_point_down(graph: tree_imports.Edges) -> None:
    say(tree_imports.floor_violations(graph))


def test_no_import_cycles(graph: tree_imports.Edges) -> None:
    say(tree_imports.cycles(graph))


def test_every_package_stands_on_a_floor(graph: tree_imports.Edges) -> None:
    assert "muster.model.states" in graph, "the graph is empty: nothing was checked"
    say(tree_imports.unknown_packages(graph))


def test_third_party_packages_stay_in_their_places() -> None:
    say(tree_imports.foreign_violations(SOURCE))


def test_dependencies_are_what_is_imported() -> None:
    named = {
        re.split(r"[<>=!~\[]", text)[0]
        for text in tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    }
    assert named == {DISTRIBUTION.get(name, name) for name in tree_imports.THIRD_PARTY}


def test_a_class_name_stands_once() -> None:
    say(tree_imports.classes_twice(SOURCE))


def test_only_the_composition_names_engine_and_stores(graph: tree_imports.Edges) -> None:
    say(tree_imports.composition_violations(graph))


def test_ports_do_nothing_themselves() -> None:
    say(tree_imports.impurities(SOURCE / "ports", promises=True))


def test_the_model_is_pure() -> None:
    say(tree_imports.impurities(SOURCE / "model"))


def test_files_and_functions_stay_small() -> None:
    say(tree_files.size_violations(tree_files.sizes(ROOT, ["src", "tests"]), OVERSIZE))


def test_the_cli_starts_light() -> None:
    """Each of these costs every command 10 to 60 ms: import them in the function that needs them."""
    code = f"""
import importlib.util, sys
for name in {HOT_PATH!r}:
    if name == "muster.cli.main" or importlib.util.find_spec(name):
        importlib.import_module(name)
sys.argv = ["muster", "--help"]
try:
    sys.modules["muster.cli.main"].main()
except SystemExit as end:
    assert not end.code, end.code
loaded = {{name.split(".")[0] for name in sys.modules}}
print("loaded:", *sorted(loaded.intersection({SLOW!r})), file=sys.stderr)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    loaded = run.stderr.rpartition("loaded:")[2].split()
    say([f"`muster --help` imports {name}: import it inside the function that needs it" for name in loaded])


@pytest.mark.skipif(sys.platform != "linux", reason="only forked on Linux")
def test_what_a_crew_imports_later_is_there_before_it_is_forked(
    graph: tree_imports.Edges, tmp_path: Path
) -> None:
    """A crew that is up during an upgrade in place would mix two versions in one process."""
    (tmp_path / "muster.toml").write_text('[agents.one]\nkind = "codex"\npermission_mode = "read-only"\n')
    code = """
import sys
from pathlib import Path
from muster.app.forked import _load_anew
_load_anew(Path(sys.argv[1]))
print(*sys.modules)
"""
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True, check=True
    )
    loaded = set(run.stdout.split())
    assert "muster.agents.codex" in loaded, "the kinds that the settings name"
    # The kinds are found by entry point; which of them a crew needs is said in its settings.
    kinds = {module for module in graph if tree_imports.package(module) == "agents"}
    roots = {"muster.app.owner", "muster.app.worker", *(f"muster.web.{name}" for name in RESOURCES)}
    late = tree_imports.reachable(graph, roots | kinds) - kinds - loaded
    say([f"{module} is imported after the fork: name it in `app.forked`" for module in sorted(late)])
    assert "asyncpg" not in loaded, (
        "servers that share a store are not forked: 3 MB of each process for nothing"
    )


@pytest.mark.parametrize("rig", ["agents", "bench", "chaos", "contain", "sim", "sync"])
def test_a_rig_says_what_its_options_are(rig: str) -> None:
    run = subprocess.run([ROOT / "run", rig, "--help"], stdout=subprocess.PIPE, text=True, check=True)
    assert run.stdout.startswith(f"usage: ./run {rig} ")
    _, _, options = run.stdout.partition("\noptions:\n")
    say(
        [
            f"{option} has no help"
            for option in re.findall(r"(?m)^  (-.*\S)\n(?!     )", options)
            if "  " not in option
        ]
    )


def test_each_path_has_one_route() -> None:
    """Two branches that are merged may have brought it both, and no owner would start."""
    found = Counter(
        (method, re.sub(r"{.*?}", "{}", "/".join(route.parts))) for method, route in [*declared(), *pages()]
    )
    say([f"{method} {path} has {n} routes: keep one" for (method, path), n in found.items() if n > 1])


def test_every_sql_file_is_used() -> None:
    say(tree_files.unused_sql(SOURCE))


def test_the_package_is_typed() -> None:
    assert (SOURCE / "py.typed").is_file(), (
        "src/muster/py.typed is missing: type checkers ignore us without it"
    )


def test_no_paths_of_one_machine(files: list[Path]) -> None:
    say(tree_files.machine_paths(ROOT, files))


def test_no_file_strayed_in(files: list[Path]) -> None:
    say(tree_files.strays(ROOT, files))


def test_no_unfinished_work(files: list[Path]) -> None:
    say(tree_files.leftovers(ROOT, files))


def test_the_lock_names_the_public_index_only() -> None:
    say(tree_files.lock_violations((ROOT / "uv.lock").read_text(encoding="utf-8")))


def test_links_lead_somewhere() -> None:
    pages = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
    say(tree_files.broken_links(ROOT, pages))


def test_every_page_of_the_docs_is_in_the_navigation() -> None:
    named = re.findall(r"(?m)^ +- .*: (\S+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"))
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert len(named) == len(set(named))
    say([f"docs/{name}: give it a place in `nav` of mkdocs.yml" for name in sorted(pages - set(named))])


def test_a_test_files_name_stands_once() -> None:
    """Two of one name cannot be collected together, and each of them passes alone."""
    counts = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    say([f"{name} stands {count} times below tests/" for name, count in counts.items() if count > 1])


def test_every_promise_has_a_test_that_says_so() -> None:
    say(tree_promises.promise_violations(tree_promises.marks(sorted((ROOT / "tests").rglob("test_*.py")))))


def test_a_promise_without_a_test_and_a_mark_without_a_promise_are_found() -> None:
    marked = dict.fromkeys(tree_promises.PROMISES[1:], "x") | {"S99": "x"}
    assert tree_promises.promise_violations(marked) == [
        "no test is marked with promise S1",
        "there is no promise S99",
    ]
