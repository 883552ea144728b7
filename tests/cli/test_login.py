"""`muster login` and contexts: which server is meant, with which token, and what is told where none answers."""

from __future__ import annotations

import asyncio
import http.server
import json
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cli_owner import Cli, Owner
from far_servers import SECRET, FarOwner, far_owner
from muster.client.async_http import AsyncConnections
from muster.client.http import ClientRequest
from muster.model import commands as c
from muster.model.access import Role
from muster_command import MUSTER
from patience import PATIENCE_S


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config" / "muster" / "contexts.json"


@pytest.fixture
def far(root: Path, tmp_path: Path, config: Path) -> Iterator[FarOwner]:
    with far_owner(tmp_path / "elsewhere") as made:
        yield made


def test_who_has_logged_in_asks_that_server_until_he_logs_out(cli: Cli, far: FarOwner, config: Path) -> None:
    wrong = cli("login", far.url, stdin=b"mst_wrong\n")
    assert (wrong.code, "nobody is known by this token" in wrong.err, config.exists()) == (4, True, False)
    assert cli("login", far.url, "--name", "../x", stdin=SECRET.encode()).code == 2
    assert cli("login", far.url, stdin=b"two words\n").code == 2
    assert not config.exists()
    ran = cli("login", far.url, "--name", "work", stdin=SECRET.encode() + b"\n")
    assert (ran.code, ran.err) == (0, "") and ran.out.startswith("work  user:ada, OWNER in workspace default")
    assert config.stat().st_mode & 0o777 == 0o600 and config.parent.stat().st_mode & 0o777 == 0o700
    assert cli("plan", "list").out.startswith("billing"), "the one in use"
    far.token("mst_reads", Role.VIEWER)
    assert cli("login", far.url, "--name", "reader", stdin=b"mst_reads").code == 0
    told = json.loads(cli("context", "list", "--json").out)
    assert [(one["context"], one["inUse"]) for one in told] == [("reader", True), ("work", False)]
    assert (
        SECRET
        not in cli("context", "list").out + cli("context", "show").out + cli("context", "list", "--json").out
    )
    assert cli("plan", "pause", "billing").code == 4, "this one only reads"
    assert cli("plan", "pause", "billing", "--context", "work").code == 0
    assert cli("plan", "resume", "billing", env={"MUSTER_CONTEXT": "work"}).code == 0
    assert cli("context", "use", "work").code == 0
    assert json.loads(cli("context", "show", "--json").out)["role"] == "OWNER"
    assert json.loads(cli("context", "show", "reader", "--json").out)["role"] == "VIEWER"
    assert cli("context", "use", "nowhere").code == 3
    assert cli("plan", "list", "--context", "nowhere").code == 3
    assert cli("logout").code == 0
    assert cli("plan", "list").code == 3, "there is no project here, and no server in use"
    assert cli("context", "delete", "reader").code == 0
    assert cli("context", "list").out.startswith("0 contexts")
    assert cli("context", "show").code == cli("logout").code == 3


class Greeter(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        told = {"workspace": "default", "actor": "user:ada", "role": "OWNER", "rights": ["read"]}
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(told).encode())

    def log_message(self, *_: object) -> None: ...


class OverIpv6(http.server.HTTPServer):
    address_family = socket.AF_INET6


def test_a_server_may_be_named_by_an_address_of_ipv6_and_in_capitals(cli: Cli, config: Path) -> None:
    with OverIpv6(("::1", 0), Greeter) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            ran = cli("login", f"HTTP://[::1]:{server.server_port}", stdin=SECRET.encode())
        finally:
            server.shutdown()
    assert (ran.code, ran.err) == (0, "") and ran.out.startswith("ipv6---1  user:ada"), ran


def test_who_logs_in_several_times_at_once_has_all_of_them(cli: Cli, far: FarOwner, config: Path) -> None:
    names = [f"c{number}" for number in range(6)]
    begun = [
        subprocess.Popen(
            [*MUSTER, "login", far.url, "--name", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        for name in names
    ]
    for login in begun:
        out, _ = login.communicate(SECRET.encode(), timeout=PATIENCE_S)
        assert login.returncode == 0, out
    told = json.loads(cli("context", "list", "--json").out)
    assert sorted(one["context"] for one in told) == names
    assert [*config.parent.iterdir()] == [config], "and nothing else stays there"


def test_a_folder_for_contexts_that_cannot_be_is_named(
    cli: Cli, far: FarOwner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    ran = cli("login", far.url, stdin=SECRET.encode())
    assert (ran.code, "contexts.json cannot be written: Not a directory" in ran.err) == (2, True), ran.err


def test_what_is_said_goes_before_the_environment_a_folder_before_the_context(
    cli: Cli, far: FarOwner, empty: Owner, root: Path, tmp_path: Path
) -> None:
    """In the order of docs/server.md; the project here has no plan, the server has one."""
    both = {"MUSTER_SERVER": far.url, "MUSTER_TOKEN": SECRET}

    def asks_the_server(*words: str, env: dict[str, str] | None = None) -> bool:
        ran = cli("plan", "list", "--json", *words, env=env)
        assert ran.code == 0, ran.err
        return bool(json.loads(ran.out))

    assert cli("login", far.url, "--name", "work", stdin=SECRET.encode()).code == 0
    assert not asks_the_server(), "a project's folder goes before the context in use"
    assert asks_the_server("--context", "work")
    assert asks_the_server(env={"MUSTER_CONTEXT": "work"})
    assert asks_the_server(env={**both, "MUSTER_CONTEXT": "nowhere"}), "MUSTER_SERVER goes first"
    assert not asks_the_server("-C", str(root), env=both), "a folder that is named is meant"
    assert not asks_the_server(env={**both, "MUSTER_SOCKET": str(empty.socket)}), "so is a task's own project"
    assert asks_the_server("--server", far.url, env={"MUSTER_SERVER": "http://127.0.0.1:9"})
    for words in (("--server", far.url, "--context", "work"), ("--server", far.url, "-C", str(root))):
        assert cli("plan", "list", *words).code == 2

    def actor(env: dict[str, str]) -> str:
        ran = cli("api", "GET", "/api/v1/whoami", "--server", far.url, env=env)
        return str(json.loads(ran.out)["role"]) if ran.code == 0 else ran.err

    far.token("mst_reads", Role.VIEWER)
    kept = tmp_path / "token"
    kept.write_text("mst_reads\n")
    kept.chmod(0o600)
    assert actor({}) == "OWNER", "of the context with this address"
    assert actor({"MUSTER_TOKEN": "mst_reads"}) == "VIEWER"
    assert actor({"MUSTER_TOKEN_FILE": str(kept), "MUSTER_TOKEN": SECRET}) == "VIEWER"
    kept.chmod(0o644)
    assert "chmod 600" in actor({"MUSTER_TOKEN_FILE": str(kept)})
    task = far.tasks()["api"]
    inside = {"MUSTER_TASK_ID": str(task.id), "MUSTER_EPOCH": "1", "MUSTER_TOKEN": "token-of-api"}
    assert actor(inside) == "MEMBER", "inside of a task it is the attempt's word"
    assert actor({**inside, "MUSTER_BY_HAND": "1"}) == "OWNER", "who has taken it by hand is a person"


def test_why_a_server_does_not_answer_is_told(cli: Cli, far: FarOwner, config: Path) -> None:
    def told(url: str, token: str = SECRET) -> tuple[int, str]:
        ran = cli("status", env={"MUSTER_SERVER": url, "MUSTER_TOKEN": token})
        assert ran.raw == b""
        return ran.code, ran.err

    with socket.create_server(("127.0.0.1", 0)) as free:
        nowhere = f"http://127.0.0.1:{free.getsockname()[1]}"
    code, text = told(nowhere)
    assert code == 7 and f"no server answers at {nowhere}: Connection refused" in text
    code, text = told(far.url.replace("http:", "https:"))
    assert code == 7 and "it does not speak TLS as it should" in text and far.url in text
    assert told("muster.example")[0] == 2
    code, text = told(far.url, "")
    assert code == 4 and "this needs a token" in text and "muster login" in text
    number = far.token("mst_gone")
    far.do(c.RevokeToken(token_id=number, actor="user:ann"))
    code, text = told(far.url, "mst_gone")
    assert code == 4 and "mst_gone was revoked" in text
    with page("text/html", b"<html>welcome</html>") as url:
        code, text = told(url)
    assert code == 7 and "a page of HTML" in text and url in text
    with page("text/plain", b"hello") as url:
        code, text = told(url)
    assert code == 7 and "no Muster server" in text
    with page("application/json", b"{}", 404) as url:
        code, text = cli("login", url, stdin=b"x")[::2]
    assert (code, config.exists()) == (1, False)
    ran = cli("api", "GET", "/api/v1/newer", env={"MUSTER_SERVER": far.url, "MUSTER_TOKEN": SECRET})
    assert ran.code == 3 and "a muster that is newer than its server" in ran.err
    config.parent.mkdir(parents=True)
    config.write_text("{")
    config.chmod(0o600)
    assert cli("context", "list").code == 2
    config.chmod(0o640)
    ran = cli("context", "list")
    assert ran.code == 4 and f"chmod 600 {config}" in ran.err


@pytest.mark.parametrize(
    ("framing", "body"),
    [
        ("Transfer-Encoding: chunked", b'3;x=y\r\n[{"\r\n6\r\na": 1}\r\n1\r\n]\r\n0\r\n\r\n'),
        ("Connection: close", b'[{"a": 1}]'),
        ("X-Nothing: said", b'[{"a": 1}]'),
    ],
)
def test_an_answer_may_come_as_proxies_frame_it(
    cli: Cli, root: Path, config: Path, framing: str, body: bytes
) -> None:
    with page("application/json", body, framing=framing) as url:
        assert json.loads(cli("api", "GET", "/x", "--server", url).out) == [{"a": 1}]
        asked = ClientRequest("GET", "/x")
        connections = AsyncConnections(url)

        async def twice() -> list[tuple[int, bytes]]:
            answers = [await connections.request(asked), await connections.request(asked)]
            await connections.close()
            return answers

        assert asyncio.run(twice()) == [(200, b'[{"a": 1}]')] * 2


@contextmanager
def page(kind: str, data: bytes, status: int = 200, *, framing: str = "") -> Iterator[str]:
    """What is no server of ours."""

    class Page(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header(*(framing or f"Content-Length: {len(data)}").split(": "))
            self.end_headers()
            self.wfile.write(data)
            self.close_connection = bool(framing) and "chunked" not in framing

        def log_message(self, *_: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_certificate_of_ones_own_is_trusted_once_its_file_is_named(
    cli: Cli, root: Path, tmp_path: Path, config: Path, certificate: tuple[Path, Path]
) -> None:
    cert, key = certificate
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(cert, key)
    with far_owner(tmp_path / "elsewhere", tls) as far:
        url = far.url.replace("http://127.0.0.1", "https://localhost")
        strange = cli("login", url, stdin=SECRET.encode())
        assert strange.code == 4 and "is not trusted: self-signed certificate" in strange.err
        assert cli("login", url, "--ca-file", str(key), stdin=SECRET.encode()).code == 2
        assert cli("login", url, "--ca-file", str(tmp_path / "none"), stdin=SECRET.encode()).code == 2
        assert not config.exists()
        assert cli("login", url, "--ca-file", str(cert), stdin=SECRET.encode()).code == 0
        assert cli("plan", "list").out.startswith("billing")
        env = {"MUSTER_SERVER": url, "MUSTER_TOKEN": SECRET, "MUSTER_CA_FILE": str(cert)}
        assert cli("plan", "list", env=env).out.startswith("billing")
        other = cli("plan", "list", env={**env, "MUSTER_SERVER": url.replace("localhost", "127.0.0.1")})
        assert other.code == 4 and "IP address mismatch" in other.err
        plain = cli("plan", "list", env={**env, "MUSTER_SERVER": url.replace("https:", "http:")})
        assert plain.code == 7 and "look at its address (https://" in plain.err
