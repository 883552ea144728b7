"""A worker's own token over the network: what it is bound to, how long it counts, and what ends it."""

from __future__ import annotations

import base64
import errno
import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import over_network
import pytest
from over_network import Line, People, listening
from test_others_attempts import W2, Host
from web_site import W1, Site

from muster.client.crew import HttpCrew
from muster.model import commands as c
from muster.model import jwt
from muster.model.access import Right, Role, Vouched
from muster.model.errors import NotAllowed, StoreFull, Unavailable
from muster.model.far_git import GitPublish
from muster.web import gate, worker_tokens
from muster.web.gate import Exposure, NetworkGate
from muster.web.identity import hash_of
from muster.web.worker_tokens import KEY_S, SKEW_S, TOKEN_S, worker_token
from muster.worker.git import DiskFull

BEAT = "/worker/v1/heartbeat"


class Clock:
    """That of the store."""

    def __init__(self) -> None:
        self.now_s = 1_800_000_000.0

    def wall_ms(self) -> int:
        return int(self.now_s * 1000)


@pytest.fixture
def clock(site: Site, monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(site.backend.clock, "wall_ms", found.wall_ms)
    return found


@pytest.fixture
def token(people: People) -> str:
    return people.token(Role.ADMIN, member="ada", scopes=[Right.SERVE])


@pytest.fixture
def far(port: int, token: str) -> Host:
    """W1, registered."""
    found = Host(port, token, "key of a folder")
    assert found.register(W1)[0] == 200
    return found


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def beat(port: int, token: str, worker_id: str = W1, **headers: str) -> tuple[int, Any]:
    body = json.dumps({"workerId": worker_id, "attempts": []}).encode()
    with Line(port) as line:
        status, _, told = line.ask("POST", BEAT, body, Authorization=f"Bearer {token}", **headers)
    return status, told


def claims(token: str) -> dict[str, Any]:
    text = token.split(".")[1]
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    return found


def test_it_says_for_what_it_is_good_and_for_how_long(far: Host, clock: Clock, token: str) -> None:
    assert far.renew(W1)[0] == 200
    said = claims(far.own[W1])
    assert said == {
        "aud": "muster-worker",
        "sub": W1,
        "ws": 1,
        "tok": hash_of(token),
        "by": f"key {hash_of('key of a folder')}",
        "agents": ["claude"],
        "iat": int(clock.now_s),
        "exp": int(clock.now_s) + TOKEN_S,
    }
    assert TOKEN_S <= 600, "minutes"


def test_it_counts_for_its_time_and_a_servers_clock_may_be_a_little_wrong(
    far: Host, port: int, clock: Clock
) -> None:
    far.renew(W1)
    own, made_s = far.own[W1], clock.now_s
    for after_s, status in [
        (0, 200),
        (-SKEW_S, 200),
        (-SKEW_S - 2, 503),
        (TOKEN_S + SKEW_S - 2, 200),
        (TOKEN_S + SKEW_S + 1, 401),
        (KEY_S * 3, 401),
    ]:
        clock.now_s = made_s + after_s
        assert beat(port, own)[0] == status, after_s


def test_keys_change_each_hour_and_one_before_lasts_as_long_as_what_it_signed(
    far: Host, port: int, clock: Clock
) -> None:
    clock.now_s = (clock.now_s // KEY_S) * KEY_S + KEY_S - 10
    far.renew(W1)
    before = far.own[W1]
    clock.now_s += 20
    far.renew(W1)
    assert jwt.kid_of(before) != jwt.kid_of(far.own[W1])
    assert beat(port, before)[0] == beat(port, far.own[W1])[0] == 200
    clock.now_s += TOKEN_S + SKEW_S - 10
    assert (beat(port, before)[0], beat(port, far.own[W1])[0]) == (401, 200)


def signed_by_us(site: Site, said: dict[str, Any], kid: str) -> str:
    """By the very key that this kid stands for."""
    key = site.owner.vault.keys_for(worker_tokens._purpose(int(kid), said["tok"]))[0]
    return jwt.signed(said, kid, key)


def test_an_old_key_signs_nothing_new_and_none_lasts_longer(
    site: Site, far: Host, port: int, clock: Clock
) -> None:
    """Whoever has the key of an hour that is over makes nothing of it."""
    far.renew(W1)
    said, kid = claims(far.own[W1]), jwt.kid_of(far.own[W1])
    assert beat(port, signed_by_us(site, said, kid))[0] == 200, "the test signs as the server does"
    assert beat(port, signed_by_us(site, said, str(int(kid) - 1)))[0] == 401
    assert beat(port, signed_by_us(site, said | {"exp": said["exp"] + 1}, kid))[0] == 401
    assert beat(port, signed_by_us(site, said | {"aud": "anything"}, kid))[0] == 401
    less = {name: value for name, value in said.items() if name != "exp"}
    assert beat(port, signed_by_us(site, less, kid))[0] == 401


def forged(token: str) -> Iterator[str]:
    header, content, mac = token.split(".")
    for alg in ("none", "None", "NONE", "HS512", "RS256"):
        said = {"alg": alg, "typ": "JWT", "kid": jwt.kid_of(token)}
        other = base64.urlsafe_b64encode(json.dumps(said).encode()).rstrip(b"=").decode()
        yield from (f"{other}.{content}.{one}" for one in (mac, ""))
    for change in ({"sub": W2}, {"ws": 2}, {"agents": ["codex"]}, {"exp": 1 << 40}):
        said = claims(token) | change
        other = base64.urlsafe_b64encode(json.dumps(said).encode()).rstrip(b"=").decode()
        yield f"{header}.{other}.{mac}"
    yield jwt.signed(claims(token), jwt.kid_of(token), b"a key of mine")
    yield jwt.signed(claims(token), "../../etc/passwd", b"")
    yield from (f"{header}.{content}.", f"{header}..{mac}", "a.b.c", "..")


def test_nothing_that_somebody_else_has_made_or_changed_is_one(site: Site, far: Host, port: int) -> None:
    before = site.get("/api/v1/events?limit=1000")
    for wrong in forged(far.own[W1]):
        status, told = beat(port, wrong)
        assert (status, told["code"]) == (401, "not_allowed"), wrong
    assert site.get("/api/v1/events?limit=1000") == before


@pytest.mark.promise("S13")
def test_it_opens_no_other_workspace(site: Site, far: Host, port: int, people: People) -> None:
    people.post("/api/v1/workspaces", name="acme")
    theirs = people.token(Role.OWNER, "acme", member="eve")
    own = far.own[W1]
    status, told = beat(port, own, **{"Muster-Workspace": "acme"})
    assert (status, told["code"]) == (403, "forbidden")
    (acme,) = [one["id"] for one in site.get("/api/v1/workspaces") if one["name"] == "acme"]
    vouched = Vouched(W1, claims(own)["by"], frozenset({"claude"}))
    mixed = worker_token(site.owner.vault, acme, claims(own)["tok"], vouched, now_ms())
    assert beat(port, mixed)[0] == 401, "a member of one workspace stands behind a worker of another"
    eve = Host(port, theirs, "key of a folder")
    assert eve.renew(W1)[0] == 404, "it is none of acme's, whatever key is shown"


def test_it_is_for_the_worker_protocol_alone_and_makes_no_other_one(port: int, people: People) -> None:
    """Whatever the token may that stands behind it."""
    far = Host(port, people.token(Role.OWNER, member="ada"), "key of a folder")
    assert far.register(W1)[0] == 200
    own = far.own[W1]
    for method, path in [
        ("GET", "/api/v1/agent-tasks"),
        ("GET", "/api/v1/whoami"),
        ("POST", "/api/v1/agent-tasks"),
        ("POST", "/api/v1/tokens"),
        ("POST", "/worker/v1/token"),
        ("POST", "/worker/v1/register"),
    ]:
        body = json.dumps({"workerId": W1, "title": "t", "actor": "eve"}).encode()
        with Line(port) as line:
            key = {"Muster-Worker": "key of a folder"}
            status, _, told = line.ask(method, path, body, Authorization=f"Bearer {own}", **key)
        assert (status, told["code"]) == (403, "forbidden"), path


def test_the_members_token_says_nothing_for_a_worker_by_itself(far: Host, port: int, token: str) -> None:
    status, told = beat(port, token, **{"Muster-Worker": "key of a folder"})
    assert (status, told["code"]) == (403, "forbidden")
    assert "a worker's own token" in told["detail"]


def revoke(site: Site, people: People) -> None:
    (listed,) = [one for one in site.get("/api/v1/tokens") if one["member"] == "ada"]
    people.post(f"/api/v1/tokens/{listed['id']}/revoke")


ENDS: dict[str, Callable[[Site, People], None]] = {
    "its token is revoked": revoke,
    "the member goes": lambda _, people: people.post("/api/v1/members/ada/remove"),
    "the member may no longer": lambda _, people: people.post("/api/v1/members", name="ada", role="MEMBER"),
    "the keys are changed": lambda site, _: site.post("/api/v1/vault/rotate", {"actor": "root"}),
}


@pytest.mark.parametrize("why", ENDS)
def test_it_ends_with_the_next_request_when(
    site: Site, far: Host, port: int, people: People, why: str
) -> None:
    assert beat(port, far.own[W1])[0] == 200
    ENDS[why](site, people)
    assert beat(port, far.own[W1])[0] in {401, 403}
    assert (far.renew(W1)[0] == 200) is (why == "the keys are changed")


def test_a_worker_that_has_ended_gets_no_other_one_and_no_work(site: Site, far: Host, port: int) -> None:
    assert far.ask("/worker/v1/deregister", {"workerId": W1})[0] == 200
    site.enqueue("a")
    assert far.claim(W1)[0] == 409
    assert far.renew(W1)[0] == 409


def test_a_stolen_one_does_nothing_for_other_agents_or_their_attempts(
    site: Site, far: Host, port: int, token: str
) -> None:
    mate = Host(port, token, "key of a folder")
    assert mate.register(W2)[0] == 200
    site.enqueue("a")
    (job,) = mate.claim(W2)[1]["jobs"]
    stolen = far.own[W1]
    thief = Host(port, "", own={W1: stolen, W2: stolen})
    for path, words in [
        ("/worker/v1/complete", site.of(job)),
        ("/worker/v1/start", site.of(job) | {"tokenHash": "0" * 64}),
        ("/worker/v1/secrets", site.of(job) | {"names": ["KEY"]}),
        (BEAT, {"workerId": W2, "attempts": []}),
        ("/worker/v1/deregister", {"workerId": W2}),
    ]:
        status, told = thief.ask(path, words)
        assert (status, told["code"]) == (403, "forbidden"), path
    assert thief.claim(W2)[0] == 403


def test_it_claims_for_no_agent_that_it_does_not_name(site: Site, far: Host) -> None:
    """Its worker has registered with more since: that is for the token which it got then."""
    old = far.own[W1]
    assert far.register(W1, agents=["claude", "codex"], general=["codex"])[0] == 200
    site.enqueue("a")
    new, far.own[W1] = far.own[W1], old
    status, told = far.claim(W1)
    assert (status, told["code"]) == (401, "not_allowed")
    far.own[W1] = new
    (job,) = far.claim(W1)[1]["jobs"]
    assert job["agent"] == "codex"
    far.own[W1] = old
    assert far.ask("/worker/v1/complete", site.of(job))[0] == 403, "nor speaks for an attempt of such a one"


def test_a_new_one_gives_its_worker_no_more_requests_a_second(
    site: Site, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(over_network, "NetworkGate", partial(NetworkGate, clock=lambda: 0.0))
    with listening(site, Exposure(rate=10)) as port:
        far = Host(port, token, "key")
        statuses = [far.register(W1)[0]]
        for _ in range(15):
            statuses += [far.renew(W1)[0], beat(port, far.own[W1])[0]]
        assert statuses == [200] * 20 + [429] * 11, "twice the rate at once, of both together"


def registration() -> c.Register:
    host: dict[str, Any] = {"hostname": "far", "pid": 7, "pid_start": 1, "boot_id": "b"}
    return c.Register(worker_id=W1, **host, agents=("claude",), general=("claude",))


def test_our_worker_renews_it_before_it_ends_and_shows_its_key_no_more(
    port: int, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[tuple[str, bool, bool]] = []
    crew = HttpCrew(f"http://127.0.0.1:{port}", token, key="key")
    ask = crew._ask

    def watched(method: str, target: str, body: bytes, *rest: Any, **more: Any) -> Any:
        headers = more.get("headers") or {}
        shown.append((target, "Muster-Worker" in headers, "Authorization" in headers))
        return ask(method, target, body, *rest, **more)

    monkeypatch.setattr(crew, "_ask", watched)
    crew.register(registration())
    crew.heartbeat(c.Heartbeat(worker_id=W1, attempts=()), wait_s=0)
    assert crew._own is not None
    first = crew._own
    crew._own = first._replace(renew_at_s=0.0)
    crew.heartbeat(c.Heartbeat(worker_id=W1, attempts=()), wait_s=0)
    assert crew._own.renew_at_s > 0
    assert shown == [
        ("/worker/v1/register", True, False),
        (BEAT, False, True),
        ("/worker/v1/token", True, False),
        (BEAT, False, True),
    ]


def test_our_worker_goes_on_when_its_token_has_ended_and_ends_when_it_gets_no_other_one(
    site: Site, port: int, token: str, people: People
) -> None:
    """As after a night's sleep of its host, or with other keys at the server."""
    crew = HttpCrew(f"http://127.0.0.1:{port}", token, key="key")
    crew.register(registration())
    site.enqueue("a", "b")
    site.post("/api/v1/vault/rotate", {"actor": "root"})
    assert len(crew.claim(c.Claim(worker_id=W1, request_id="r"), wait_s=0).jobs) == 1
    revoke(site, people)
    with pytest.raises(NotAllowed, match="was revoked"):
        crew.claim(c.Claim(worker_id=W1, request_id="s"), wait_s=0)


def test_our_worker_goes_on_trying_where_a_token_that_it_was_just_given_is_not_taken(
    port: int, token: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As by servers that do not agree on the time: none has said that it may not.  The next one is asked."""
    one, other = f"http://127.0.0.1:{port}", f"http://localhost:{port}"
    crew = HttpCrew(f"{one},{other}", token, key="key")
    crew.register(registration())

    def refused(*_: object) -> None:
        raise NotAllowed("the token has expired; nothing was changed")

    with monkeypatch.context() as patched:
        patched.setattr(gate, "valid_claims", refused)
        for request, then in (("r", other), ("s", one)):
            with pytest.raises(Unavailable, match="has expired"):
                crew.claim(c.Claim(worker_id=W1, request_id=request), wait_s=0)
            assert crew.servers.startswith(then)
    assert crew.claim(c.Claim(worker_id=W1, request_id="s"), wait_s=0).jobs == ()
    (warning,) = [one for one in caplog.records if one.name == "muster.client.crew"]
    assert "has expired" in warning.getMessage()


def test_our_worker_that_its_server_no_longer_knows_is_told_so(port: int, token: str) -> None:
    """Its store was put back while the worker was away, for longer than its token counts."""
    crew = HttpCrew(f"http://127.0.0.1:{port}", token, key="key")
    crew.register(registration())
    assert crew._own is not None
    crew._worker_id = "worker-unknown0"
    crew._own = crew._own._replace(text="a.b.c")
    assert not crew.heartbeat(c.Heartbeat(worker_id="worker-unknown0", attempts=()), wait_s=0).known


def test_the_agents_of_a_worker_fit_into_its_token(site: Site, port: int, token: str) -> None:
    names = [f"{number:03}{'x' * 190}" for number in range(100)]
    far = Host(port, token, "key")
    status, told = far.register(W1, agents=names, general=names[:1])
    assert (status, told["code"]) == (422, "bad_input")
    assert "too long for one worker" in told["detail"]
    assert site.get("/api/v1/workers") == [], "it is not registered"


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), StoreFull),
        (DiskFull(Path("there"), "No space left on device"), StoreFull),
        (RuntimeError("a bug"), Unavailable),
        (Unavailable("not now"), Unavailable),
    ],
)
def test_our_worker_waits_where_a_server_fails_at_its_request(
    port: int, token: str, monkeypatch: pytest.MonkeyPatch, failure: Exception, told: type[Unavailable]
) -> None:
    """It may hold finished work: no fault of the server's ends it."""

    async def fail(*_: object) -> None:
        raise failure

    crew = HttpCrew(f"http://127.0.0.1:{port}", token, key="key")
    crew.register(registration())
    monkeypatch.setattr("muster.web.far_git._named", fail)
    with pytest.raises(Unavailable) as refused:
        crew.git_publish(GitPublish(task_id=1, epoch=1, old=None, new="a" * 40))
    assert type(refused.value) is told, "and nothing that is of this host"
