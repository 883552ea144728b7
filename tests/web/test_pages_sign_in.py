"""Who is let in to the pages of a server with login, as what, and for how long."""

from __future__ import annotations

import re

import pytest
from over_network import Line, People, ask
from web_site import Site

from muster.model.access import RIGHTS, Right, Role
from muster.model.forms import TASK_ACTIONS
from muster.web.app import pages
from muster.web.open_paths import ENTER
from muster.web.visits import SESSION
from page_reader import Reader


def link_of(port: int, token: str) -> str:
    status, told = ask(port, "POST", "/api/v1/sign-in-links", token, {})
    assert status == 201
    path: str = told["path"]
    return path


def let_in(port: int, token: str) -> Reader:
    reader = Reader(port)
    shown = reader.send(reader.get(link_of(port, token)).form("Sign in"))
    assert shown.status == 200 and "Overview" in shown.text
    return reader


def sessions(site: Site) -> list[dict[str, object]]:
    return [one for one in site.get("/api/v1/tokens") if one["name"] == "a browser"]


def test_a_link_lets_one_browser_in_once(site: Site, people: People, port: int) -> None:
    token = people.token(Role.MEMBER, member="ada")
    link = link_of(port, token)
    reader = Reader(port)
    for _ in range(2):
        looked = reader.get(link)  # as what shows a preview of it does
        assert looked.status == 200 and not reader.cookie.partition("=")[2].startswith(SESSION)
    assert not sessions(site)
    shown = reader.post(ENTER, looked.form("Sign in").fields)
    assert shown.status == 303
    cookie = shown.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=Lax" in cookie and "Path=/" in cookie and "Secure" not in cookie
    assert "user:ada, MEMBER" in reader.get("/").text
    another = Reader(port)
    again = another.post(ENTER, looked.form("Sign in").fields)
    assert again.status == 401 and "was used already" in again.text and not another.cookie
    (session,) = sessions(site)
    assert (session["member"], session["role"]) == ("ada", "MEMBER")
    assert 0 < session["expiresAtMs"] - session["createdAtMs"] <= 12 * 3600 * 1000  # type: ignore[operator]


@pytest.mark.parametrize("why", ["made up", "changed", "of another site", "no token"])
def test_what_is_no_link_lets_nobody_in(site: Site, people: People, port: int, why: str) -> None:
    token = people.token(Role.MEMBER, member="ada")
    fields = Reader(port).get(link_of(port, token)).form("Sign in").fields
    headers = {"Origin": "https://evil.example"} if why == "of another site" else {}
    if why == "made up":
        fields = {"code": "x" * 40}
    elif why == "changed":
        fields = {"code": fields["code"][:-6] + "AAAAAA"}
    elif why == "no token":
        fields = {"token": "mst_nobody"}
    shown = Reader(port).post(ENTER, fields, **headers)
    assert shown.status == (403 if headers else 401) and not shown.headers.get("set-cookie")
    assert not sessions(site)


def test_whoever_is_not_known_is_not_told_which_workspaces_there_are(people: People, port: int) -> None:
    people.post("/api/v1/workspaces", name="acme")
    for path in ("/enter", "/health/live"):
        told = [
            Reader(port).ask("GET", path, **{"Muster-Workspace": name}).status for name in ("acme", "none")
        ]
        assert told == [200, 200], path


def test_over_https_the_cookie_is_for_https_alone(people: People, port: int) -> None:
    token = people.token(Role.MEMBER, member="ada")
    reader = Reader(port)
    shown = reader.post(ENTER, {"token": token}, Origin=f"https://{reader.host}")
    assert shown.status == 303 and "; Secure" in shown.headers["set-cookie"]


def test_without_a_session_each_page_is_the_door(site: Site, people: People, port: int) -> None:
    site.enqueue("a")
    for path in ("/", "/tasks", "/inbox", "/plans/api", "/nowhere"):
        shown = Reader(port).get(path)
        told = shown.text.split("<main")[1].replace(f'="{path}"', "")  # what was asked, to be led there
        assert shown.status == 401 and "muster ui" in told and "api" not in told
    assert Reader(port).ask("GET", "/live", Accept="text/event-stream").status == 401
    assert Reader(port).post("/tasks/7/pause", {}).status == 401


def test_a_link_to_a_page_leads_there_by_way_of_the_door(site: Site, people: People, port: int) -> None:
    token = people.token(Role.MEMBER, member="ada")
    for wanted in ("/tasks?plan=api&status=failed", "/inbox", "/plans/api"):
        door = Reader(port).get(wanted)
        wrong = Reader(port).post(ENTER, {**door.form("Sign in").fields, "token": "mst_nobody"})
        assert wrong.status == 401
        for form in (door.form("Sign in"), wrong.form("Sign in")):
            let = Reader(port).post(ENTER, {**form.fields, "token": token})
            assert (let.status, let.headers["location"]) == (303, wanted)


def test_a_link_that_works_once_leads_to_the_page_that_it_names(people: People, port: int) -> None:
    token = people.token(Role.MEMBER, member="ada")
    reader = Reader(port)
    form = reader.get(f"{link_of(port, token)}&back=%2Ftasks%3Fplan%3Dapi").form("Sign in")
    let = reader.post(ENTER, form.fields)
    assert (let.status, let.headers["location"]) == (303, "/tasks?plan=api")


@pytest.mark.parametrize(
    "back",
    [
        "https://evil.example/",
        "//evil.example",
        "/\\evil.example",
        "javascript:alert(1)",
        "/\r\nX: y",
        "",
        "/enter?back=%2Fenter",
        "/sign-out",
    ],
)
def test_whoever_is_let_in_is_led_to_a_page_of_ours_only(people: People, port: int, back: str) -> None:
    token = people.token(Role.MEMBER, member="ada")
    let = Reader(port).post(ENTER, {"token": token, "back": back})
    assert (let.status, let.headers["location"]) == (303, "/") and "x" not in let.headers


def test_a_session_opens_pages_and_not_the_api(people: People, port: int) -> None:
    reader = let_in(port, people.token(Role.OWNER, member="ada"))
    secret = reader.cookie.partition("=")[2]
    assert secret.startswith(SESSION)
    for path in ("/api/v1/status", "/api/v1/agent-tasks", "/metrics"):
        assert reader.ask("GET", path).status == 401
        with Line(port) as line:
            assert line.ask("GET", path, b"", Authorization=f"Bearer {secret}")[0] == 401
    assert reader.ask("POST", "/api/v1/shutdown", b"{}").status == 401


@pytest.mark.parametrize("why", ["signed out", "token revoked", "member removed", "session revoked"])
def test_a_session_that_is_over_opens_nothing(site: Site, people: People, port: int, why: str) -> None:
    token = people.token(Role.MEMBER, member="ada")
    reader = let_in(port, token)
    cookie = reader.cookie
    (session,) = sessions(site)
    if why == "signed out":
        out = reader.post("/sign-out", reader.get("/").form("Sign out").fields)
        assert out.status == 303 and "Max-Age=0" in out.headers["set-cookie"]
    elif why == "token revoked":
        (given,) = [one for one in site.get("/api/v1/tokens") if one["member"] == "ada" and one != session]
        people.post(f"/api/v1/tokens/{given['id']}/revoke")
    elif why == "member removed":
        people.post("/api/v1/members/ada/remove")
    else:
        people.post(f"/api/v1/tokens/{session['id']}/revoke")
    assert Reader(port, cookie).get("/tasks").status == 401


def test_a_session_lasts_no_longer_than_its_token(site: Site, people: People, port: int) -> None:
    let_in(port, people.token(Role.MEMBER, member="ada", expiresS=600))
    (session,) = sessions(site)
    assert session["expiresAtMs"] - session["createdAtMs"] <= 600_000  # type: ignore[operator]


@pytest.mark.promise("S13")
def test_pages_show_ones_own_workspace(site: Site, people: People, port: int) -> None:
    number = site.enqueue("unseen")["unseen"]
    people.post("/api/v1/workspaces", name="acme")
    reader = let_in(port, people.token(Role.OWNER, "acme", member="eve"))
    assert "unseen" not in reader.get("/").text + reader.get("/tasks").text
    for path in (f"/tasks/{number}", f"/tasks/{number}/pause", f"/tasks/{number}/transcript", "/plans/api"):
        assert reader.get(path).status == 404, path
    assert reader.ask("GET", f"/live?task={number}").status == 404


def test_hints_of_an_empty_workspace_fit_there(people: People, port: int) -> None:
    """Its plans have no files on the server, and its workers join with a token."""
    people.post("/api/v1/workspaces", name="acme")
    theirs = let_in(port, people.token(Role.OWNER, "acme", member="eve"))
    ours = let_in(port, people.token(Role.OWNER, member="ada"))
    assert "muster run plan.md" in ours.get("/").text and "muster up</code>" in ours.get("/crew").text
    shown = {path: theirs.get(path).text for path in ("/", "/plans", "/crew")}
    assert "muster run" not in shown["/"] and "muster up<" not in shown["/crew"]
    assert "muster worker start --server URL" in shown["/crew"]
    assert all("muster plan add plan.md --server URL" in shown[path] for path in ("/", "/plans"))


# -- roles

ROUTES: dict[str, tuple[str, Right | None]] = {
    "GET /": ("/", Right.READ),
    "GET /audit": ("/audit", Right.READ),
    "GET /audit/verify": ("/audit/verify", Right.READ),
    "GET /crew": ("/crew", Right.READ),
    "GET /settings": ("/settings", Right.READ),
    "GET /settings/{form}": ("/settings/member-set", Right.PEOPLE),
    "POST /settings/{form}": ("/settings/member-set", Right.PEOPLE),
    "GET /bulk/{action}": ("/bulk/retry", Right.WORK),
    "POST /bulk/{action}": ("/bulk/retry", Right.WORK),
    "GET /enter": ("/enter", None),
    "POST /enter": ("/enter", None),
    "GET /find": ("/find?q=api", Right.READ),
    "GET /inbox": ("/inbox", Right.READ),
    "GET /live": ("", Right.READ),
    "GET /plans": ("/plans", Right.READ),
    "GET /plans/{plan}": ("/plans/api", Right.READ),
    "GET /plans/{plan}/pull-request": ("/plans/api/pull-request", Right.CREW),
    "POST /plans/{plan}/pull-request": ("/plans/api/pull-request", Right.CREW),
    "GET /plans/{plan}/review": ("/plans/api/review", Right.READ),
    "POST /plans/{plan}/review": ("/plans/api/review", Right.READ),
    "GET /plans/{plan}/{action}": ("/plans/api/cancel", Right.WORK),
    "POST /plans/{plan}/{action}": ("/plans/api/pause", Right.WORK),
    "POST /pools/{pool}/open": ("/pools/none/open", Right.CREW),
    "POST /sign-out": ("", Right.READ),
    "GET /static/{version}/{name}": ("/static/0/none.css", None),
    "GET /tasks/{task_id:id}/edit": ("/tasks/7/edit", Right.WORK),
    "POST /tasks/{task_id:id}/edit": ("/tasks/7/edit", Right.WORK),
    "POST /tasks/{task_id:id}/move": ("/tasks/7/move", Right.READ),
    "POST /theme": ("", Right.READ),
    "GET /tasks": ("/tasks", Right.READ),
    "GET /tasks/{task_id:id}": ("/tasks/7", Right.READ),
    "GET /tasks/{task_id:id}/artifacts/{epoch:id}/{name}": ("/tasks/7/artifacts/1/x", Right.READ),
    "GET /tasks/{task_id:id}/pull-request": ("/tasks/7/pull-request", Right.CREW),
    "POST /tasks/{task_id:id}/pull-request": ("/tasks/7/pull-request", Right.CREW),
    "GET /tasks/{task_id:id}/review": ("/tasks/7/review", Right.READ),
    "POST /tasks/{task_id:id}/review": ("/tasks/7/review", Right.READ),
    "GET /tasks/{task_id:id}/transcript": ("/tasks/7/transcript", Right.READ),
    "GET /tasks/{task_id:id}/{action}": ("/tasks/7/cancel", Right.WORK),
    "POST /tasks/{task_id:id}/{action}": ("/tasks/7/pause", Right.WORK),
}
"""Each page, an address of it (empty: tried elsewhere), and the right that it needs; None: anybody."""


def test_each_page_has_a_row() -> None:
    assert {f"{method} {'/'.join(route.parts)}" for method, route in pages()} == ROUTES.keys()


@pytest.mark.parametrize("role", Role)
def test_a_role_may_on_pages_what_it_may_elsewhere(site: Site, people: People, port: int, role: Role) -> None:
    number = site.enqueue("a")["a"]
    reader = let_in(port, people.token(role, member="ada"))
    csrf = reader.get("/").form("Sign out").fields["csrf"]
    before = len(site.get("/api/v1/events?limit=1000"))
    for row, (path, right) in ROUTES.items():
        if not path or path == ENTER:
            continue
        target = path.replace("/7", f"/{number}")
        post = row.startswith("POST")
        shown = reader.post(target, {"csrf": csrf}) if post else reader.ask("GET", target)
        assert (shown.status == 403) == (right is not None and right not in RIGHTS[role]), (row, shown.text)
    if Right.WORK not in RIGHTS[role]:
        assert len(site.get("/api/v1/events?limit=1000")) == before


def test_a_viewer_sees_no_button_that_a_viewer_may_not_press(site: Site, people: People, port: int) -> None:
    """The pages ask the same table as the API's refusals."""
    site.enqueue("a", "b")
    site.register()
    job, _ = site.started()
    site.report(job, "ask", {"question": "Which?"})
    seen, looks = {}, {}
    for role in (Role.VIEWER, Role.MEMBER):
        reader = let_in(port, people.token(role, member=role.lower()))
        places = ("/", "/inbox", "/plans/api", f"/tasks/{job['taskId']}", "/crew", "/audit", "/settings")
        pages = [reader.get(path) for path in (*places, "/tasks", "/tasks?view=board")]
        if role is Role.VIEWER:
            assert not re.search(r"/(?:settings|bulk)/", "".join(page.text for page in pages))
        links = re.findall(r"/(?:tasks|plans)/\w+/(\w+)\"", "".join(page.text for page in pages))
        looks[role] = {
            name for page in pages for name in re.findall(r'<a class="button"[^>]*>([^<]+)<', page.text)
        }
        seen[role] = {label for page in pages for label in page.labels} | set(links) & TASK_ACTIONS.keys()
    assert seen[Role.VIEWER] == {"Sign out", "Light", "Show"}
    assert not looks[Role.VIEWER] & {action.label for action in TASK_ACTIONS.values()}
    assert "Answer" in looks[Role.MEMBER], "its card leads to where it is given"
    assert {"Answer", "Pause", "cancel", "skip"} <= seen[Role.MEMBER]


def test_by_any_name_that_a_proxy_gives_it_a_server_with_login_answers(people: People, port: int) -> None:
    """A page of another site that points its own name here has no session by that name."""
    reader = Reader(port)
    reader.host = "muster.example"
    reader.post(ENTER, {"token": people.token(Role.OWNER, member="ada")})
    asked = reader.get("/settings/member-set")
    assert asked.status == 200 and "user:ada, OWNER" in asked.text
    done = reader.send(asked.form("Set a member"), name="ben", role="MEMBER")
    assert done.status == 200 and "<strong>ben</strong>" in done.text
