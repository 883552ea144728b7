"""A forge on the loopback device: as much of three REST APIs as pull requests need."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

OWN = {"id": 1, "full_name": "acme/site"}


class StubForge:
    """`path` ends the address of its API and says whose it is."""

    def __init__(self, path: str = "/api/v3") -> None:
        self.token = "s3cret-token"
        self.pulls: list[dict[str, Any]] = []
        self.checks: dict[str, list[dict[str, Any]]] = {}
        """By commit."""
        self.every_check: list[dict[str, Any]] = []
        """Of every commit that has none of its own."""
        self.statuses: list[dict[str, Any]] = []
        self.comments: list[dict[str, Any]] = []
        """With "path": on a line; else on the whole."""
        self.writers = {"ann"}
        self.asked: list[tuple[str, str, Any]] = []
        """(method, path, body)"""
        self.seen_tokens: list[str] = []
        self.merges_when_pushed = 0
        """So many updates of a pull request, and it is merged."""
        self.resolved: set[int] = set()
        """Comments whose threads are resolved."""
        self.head: Callable[[str], str] = lambda _: "0" * 40
        """Where a branch stands; empty: it was deleted."""
        self.status = 0
        """What all requests are answered with, where it is one."""
        self.odd: tuple[str, str] | None = None
        """(the method, the JSON) of an answer that is none."""
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None: ...

            def __getattr__(self, name: str) -> Any:
                if name.startswith("do_"):
                    return self._do
                raise AttributeError(name)

            def _do(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                given = json.loads(body) if body else None
                stub.seen_tokens.append(self.headers.get("Authorization") or "")
                parts = urlsplit(self.path)
                below = parts.path.removeprefix(path).strip("/")
                stub.asked.append((self.command, unquote(below), given))
                code, answer = stub.answer(self.command, below, parse_qs(parts.query), given, self.headers)
                if stub.odd is not None and stub.odd[0] == self.command:
                    code, data = 200, stub.odd[1].encode()
                else:
                    data = json.dumps(answer).encode()
                self.send_response(code)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        self.api = f"http://127.0.0.1:{self.port}{path}"
        self.url = f"http://127.0.0.1:{self.port}/acme/site.git"
        self._gitlab = path.endswith("v4")
        self._scheme = "token" if path.endswith("v1") else "Bearer"
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        ).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, method: str, path: str, query: Any, given: Any, headers: Any) -> tuple[int, Any]:
        if self.status:
            return self.status, {"message": f"no, {headers.get('Authorization')}"}
        if headers.get("Authorization") != f"{self._scheme} {self.token}":
            return 401, {"message": "Bad credentials"}
        if path.endswith("graphql"):
            return 200, _threads(self.resolved)
        home = "projects/acme%2Fsite/" if self._gitlab else "repos/acme/site/"
        if not path.startswith(home):
            return 404, {"message": "Not Found"}
        rest = path.removeprefix(home)
        return (self._lab if self._gitlab else self._hub)(method, rest, query, given)

    def _hub(self, method: str, path: str, query: Any, given: Any) -> tuple[int, Any]:
        if (method, path) == ("GET", "pulls"):
            if self._scheme == "token":
                return 200, self.pulls
            owner, _, head = query["head"][0].partition(":")
            assert owner == "acme"
            of_it = [p for p in self.pulls if p["head"] is None or p["head"]["ref"] == head]
            return 200, [p for p in of_it if p["state"] == "open"]
        if (method, path) == ("POST", "pulls"):
            number = len(self.pulls) + 7
            self.pulls.append(
                {
                    "number": number,
                    "html_url": f"https://forge.example/acme/site/pull/{number}",
                    "state": "open",
                    "head": {"ref": given["head"], "sha": "0" * 40, "repo": OWN},
                    "base": {"ref": given["base"], "repo": OWN},
                    "title": given["title"],
                    "body": given["body"],
                }
            )
            return 201, self.pulls[-1]
        if found := re.fullmatch(r"pulls/(\d+)", path):
            pull = self.pulls[int(found[1]) - 7]
            if method == "PATCH":
                base = given.pop("base", None)
                pull.update(given)
                pull["base"] = {"ref": base, "repo": OWN} if base else pull["base"]
                self.merges_when_pushed -= 1
                if self.merges_when_pushed == 0:
                    pull.update(state="closed", merged=True)
            if (pull["head"] or {}).get("repo") == OWN:
                pull["head"]["sha"] = self.head(pull["head"]["ref"]) or pull["head"]["sha"]
            return 200, pull
        if found := re.fullmatch(r"commits/(\w+)/check-runs", path):
            return 200, {"check_runs": self.checks.get(found[1], self.every_check)}
        if re.fullmatch(r"commits/(\w+)/status", path):
            return 200, {"statuses": self.statuses}
        if re.fullmatch(r"pulls/\d+/comments", path):
            return 200, [one for one in self.comments if "path" in one]
        if re.fullmatch(r"pulls/\d+/reviews", path):
            return 200, [{"id": 3, "state": "COMMENT", "body": ""}] if self._scheme == "token" else []
        if re.fullmatch(r"pulls/\d+/reviews/3/comments", path):
            return 200, [one for one in self.comments if "path" in one]
        if re.fullmatch(r"issues/\d+/comments", path):
            return 200, [one for one in self.comments if "path" not in one]
        if found := re.fullmatch(r"collaborators/([\w-]+)/permission", path):
            return 200, {"permission": "write" if found[1] in self.writers else "read"}
        return 404, {"message": "Not Found"}

    def _lab(self, method: str, path: str, query: Any, given: Any) -> tuple[int, Any]:
        if (method, path) == ("GET", "merge_requests"):
            head = query["source_branch"][0]
            return 200, [p for p in self.pulls if p["state"] == "opened" and p["source_branch"] == head]
        if (method, path) == ("POST", "merge_requests"):
            number = len(self.pulls) + 7
            web = f"https://forge.example/acme/site/-/merge_requests/{number}"
            where = {"source_project_id": 1, "target_project_id": 1}
            made = {"iid": number, "web_url": web, "state": "opened", "sha": "0" * 40, **where, **given}
            self.pulls.append(made)
            return 201, self.pulls[-1]
        if found := re.fullmatch(r"merge_requests/(\d+)", path):
            pull = self.pulls[int(found[1]) - 7]
            pull.update(given or {})
            return 200, pull
        if found := re.fullmatch(r"repository/commits/(\w+)/statuses", path):
            return 200, self.checks.get(found[1], self.every_check)
        if re.fullmatch(r"merge_requests/\d+/notes", path):
            return 200, self.comments
        if found := re.fullmatch(r"members/all/(\d+)", path):
            level = 40 if found[1] in self.writers else 20
            return (200, {"access_level": level}) if found[1] != "9" else (404, {"message": "404 Not found"})
        return 404, {"message": "404 Not found"}

    def comment(self, who: str, text: str, **more: Any) -> None:
        number = len(self.comments) + 1
        self.comments.append(
            {"id": number, "user": {"login": who, "type": "User"}, "body": text, "html_url": "", **more}
        )


def _threads(resolved: set[int]) -> Any:
    nodes = [
        {"isResolved": done, "comments": {"nodes": [{"databaseId": number} for number in numbers]}}
        for done, numbers in ((True, resolved), (False, {999}))
    ]
    return {"data": {"repository": {"pullRequest": {"reviewThreads": {"nodes": nodes}}}}}


def check_run(name: str, conclusion: str | None, said: str = "") -> dict[str, Any]:
    return {
        "name": name,
        "status": "completed" if conclusion else "in_progress",
        "conclusion": conclusion,
        "html_url": f"https://forge.example/runs/{name}",
        "output": {"title": said, "summary": None},
    }


FAKE_TOOL = """\
#!{python}
import json, os, sys, urllib.error, urllib.request
words = sys.argv[1:]
with open(os.environ["TOOL_LOG"], "a") as log:
    log.write(json.dumps(words) + "\\n")
assert words[:2] == ["api", "--hostname"], words
method, path = words[words.index("--method") + 1], words[words.index("--method") + 2]
data = sys.stdin.buffer.read() if "--input" in words else None
request = urllib.request.Request(os.environ["TOOL_API"] + "/" + path, data=data, method=method)
request.add_header("Authorization", "Bearer " + os.environ["TOOL_TOKEN"])
try:
    print(urllib.request.urlopen(request).read().decode())
except urllib.error.HTTPError as error:
    print(error.read().decode())
    sys.exit(f"gh: it says no (HTTP {{error.code}})")
"""
"""`gh` or `glab`: hands on to the stub, with a login of its own."""
