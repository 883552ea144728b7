"""The image of deploy/container: what stands in its files, and, where containers can be made, a server in one."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from muster.cli import orchestrator, serve
from muster.cli.main import Parser
from patience import until

ROOT = Path(__file__).parents[2]
CONTAINER = ROOT / "deploy" / "container"


def _instructions() -> list[tuple[str, str]]:
    joined = (CONTAINER / "Containerfile").read_text().replace("\\\n", "")
    lines = [line for line in joined.splitlines() if line and not line.startswith("#")]
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines)]


def _parsed(add: Callable[[argparse.ArgumentParser], None], words: list[str]) -> argparse.Namespace:
    parser = Parser(prog="muster")
    add(parser)
    return parser.parse_args(words)


def test_the_container_starts_what_there_is() -> None:
    found = dict(_instructions())
    assert (json.loads(found["ENTRYPOINT"]), json.loads(found["CMD"])[0]) == (["muster"], "serve")
    assert _parsed(serve.add, json.loads(found["CMD"])[1:]).listen == f"0.0.0.0:{found['EXPOSE']}"
    health = json.loads(found["HEALTHCHECK"].partition("CMD ")[2])
    assert health[:2] == ["muster", "orchestrator"]
    _parsed(orchestrator.add, health[2:])
    for word, rest in _instructions():
        if word == "COPY" and not rest.startswith("--from"):
            assert all((ROOT / name).exists() for name in rest.split()[:-1])
    service = yaml.safe_load((CONTAINER / "compose.yaml").read_text())["services"]["muster"]
    context = CONTAINER / service["build"]["context"]
    assert (context / service["build"]["dockerfile"]).samefile(CONTAINER / "Containerfile")
    assert service["ports"][0].endswith(f":{found['EXPOSE']}")
    assert service["volumes"] == [f"project:{found['WORKDIR']}"]


@pytest.fixture(scope="module")
def engine() -> str:
    """Docker or Podman, whichever works here and has what the image is built on, or can load it."""
    base = next(rest.split()[0] for word, rest in _instructions() if word == "FROM")
    for name in filter(shutil.which, ("docker", "podman")):
        # To run a container of it is to have it, or to load it.
        if _ran(name, "run", "--rm", base, "python", "--version"):
            return name
    pytest.skip(f"no docker or podman has {base} here and can run it, so the image is not built")


@pytest.fixture(scope="module")
def image(engine: str) -> str:
    return _out(engine, "build", "-q", "-f", str(CONTAINER / "Containerfile"), str(ROOT)).strip()


@pytest.fixture
def volume(engine: str) -> Iterator[str]:
    name = f"muster-test-{os.getpid()}"
    _out(engine, "volume", "create", name)
    yield name
    _out(engine, "volume", "rm", name)


def _ran(*argv: str) -> bool:
    return subprocess.run(argv, capture_output=True, check=False).returncode == 0


def _out(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_server_in_a_container_keeps_all_in_its_volume(engine: str, image: str, volume: str) -> None:
    assert _out(engine, "run", "--rm", image, "--version").startswith("muster ")
    settings = ("--cap-drop=ALL", "--security-opt=no-new-privileges", "-v", f"{volume}:/project")
    tokens = []
    for turn in ("first", "second"):
        name = f"{volume}-{turn}"
        _out(engine, "run", "--detach", "--name", name, *settings, image)
        try:
            until(lambda name=name: _ran(engine, "exec", name, "muster", "orchestrator", "status"))
            tokens.append(_out(engine, "exec", name, "cat", ".muster/first-token"))
            _out(engine, "exec", name, "muster", "task", "add", f"of the {turn} turn")
            listed = _out(engine, "exec", name, "muster", "task", "list", "--fields", "title")
            _out(engine, "stop", "--time", "60", name)
            assert _out(engine, "inspect", "--format", "{{.State.ExitCode}}", name) == "0\n"
        finally:
            _out(engine, "rm", "--force", name)
    assert tokens[0] == tokens[1] and tokens[0].startswith("mst_")
    assert sorted(listed.splitlines()) == ["of the first turn", "of the second turn"]
