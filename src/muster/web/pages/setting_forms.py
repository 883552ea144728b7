"""What may be set from the pages: a form each, for an operation of the API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote

import msgspec

from muster.model.access import Caller, Role
from muster.model.errors import BadInput, CommitUnknown, MusterError, NotFound
from muster.model.forms import RAISE_BUDGET, Action, FormField, body_of_form
from muster.model.json_value import Json
from muster.model.numbers import is_number
from muster.model.patterns import MEMBER, WEBHOOK
from muster.model.shown import age
from muster.model.states import CrewStatus
from muster.model.wording import task_name
from muster.web.access import refuse_above
from muster.web.backend import Backend
from muster.web.http import Problem, Reply, Request, error_reply
from muster.web.pages.forms import ask_api, back_to, refuse_action
from muster.web.pages.overview import DoneQuery
from muster.web.pages.sent_tests import Kind, Receiver, send_test
from muster.web.pages.sign_in import session_of
from muster.web.rights import stands_over
from muster.web.routes import Routes
from muster.web.sent_forms import sent_already
from muster.web.visits import done_word, parent_of, posted, secret_of

routes = Routes(pages=True)

MICROUSD = 1_000_000
HOUR_S = 3600
FILLED_IN_S = 600
"""A form is filled in for about so long: what it offers at most is possible then, too."""
_API_NAMES = {"hours": "expiresS", "usd": "microusd"}
"""Of fields that a person writes in other units."""
_SUCH_AS = {"hours": "0.5", "dollars": "2.50"}


class SettingForm(NamedTuple):
    path: str
    """Of the API; `{id}` is what it is about."""
    action: Action
    back: str = "/settings"
    """`{id}` as above."""
    about: str = ""
    """The field of the API that says what it is about, where its path does not."""
    secret: bool = False
    """It makes one, which its answer shows."""
    tests: Kind | None = None
    """What it sends a test to: it is done once that was taken."""


_NAME = FormField("name", "Name", required=True, rule=MEMBER.rule)
_ROLES = tuple(Role)
_MEMBER = "/api/v1/members"
_TOKENS, _HOOKS = "/api/v1/tokens", "/api/v1/webhooks"
SETTING_FORMS: dict[str, SettingForm] = {
    "member-set": SettingForm(
        _MEMBER,
        Action("Set a member", (_NAME, FormField("role", "Role", required=True, choices=_ROLES))),
    ),
    "member-remove": SettingForm(
        f"{_MEMBER}/{{id}}/remove",
        Action("Remove the member", (), "Their tokens count for nothing from now on."),
    ),
    "token-add": SettingForm(
        _TOKENS,
        Action(
            "Make a token",
            (
                FormField("name", "What it is for", required=True),
                FormField("member", "Whose it is", required=True, rule=MEMBER.rule),
                FormField("role", "Role, at most the member's", required=True, choices=_ROLES),
                FormField("hours", "For how many hours", rule="above 0"),
            ),
        ),
        secret=True,
    ),
    "token-revoke": SettingForm(
        f"{_TOKENS}/{{id}}/revoke",
        Action("Revoke the token", (), "Whoever uses it is refused from now on."),
    ),
    "webhook-add": SettingForm(
        _HOOKS,
        Action(
            "Add a webhook",
            (
                FormField(
                    "url",
                    "Its address",
                    required=True,
                    rule=WEBHOOK.rule,
                ),
            ),
        ),
        secret=True,
    ),
    "webhook-test": SettingForm(f"{_HOOKS}/{{id}}/test", Action("Send a test"), tests="webhook"),
    "webhook-resend": SettingForm(
        f"{_HOOKS}/{{id}}/resend", Action("Send again what was not taken", told="under way")
    ),
    "webhook-remove": SettingForm(
        f"{_HOOKS}/{{id}}/remove",
        Action("Remove the webhook", (), "What was still to be sent there is dropped."),
    ),
    "channel-test": SettingForm("/api/v1/channels/{id}/test", Action("Send a test there"), tests="channel"),
    "channel-resend": SettingForm(
        "/api/v1/channels/{id}/resend", Action("Tell again what was not told", told="under way")
    ),
    "budget-set": SettingForm(
        "/api/v1/budgets",
        Action(
            "Set a budget",
            (FormField("plan", "Plan", required=True), *RAISE_BUDGET.fields),
        ),
    ),
    "plan-budget": SettingForm("/api/v1/budgets", RAISE_BUDGET, "/plans/{id}", "plan"),
    "task-budget": SettingForm("/api/v1/budgets", RAISE_BUDGET, "/tasks/{id}", "taskId"),
    "worker-stop": SettingForm(
        "/api/v1/workers/{id}/stop",
        Action("Stop the worker", (), "It finishes what it holds, takes nothing new, and ends."),
        "/crew",
    ),
    "permission-revoke": SettingForm(
        "/api/v1/permissions/{id}/revoke",
        Action("Revoke what is allowed", (), "Agents ask again before they do this."),
        "/crew",
    ),
    "pool-open": SettingForm("/api/v1/pools/{id}/open", Action("Try the provider again"), "/crew"),
    "crew-pause": SettingForm(
        "/api/v1/crew",
        Action("Pause the crew", (), "Nothing new is begun; what is at work goes on."),
        "/crew",
    ),
    "crew-resume": SettingForm("/api/v1/crew", Action("Let the crew go on"), "/crew"),
}
DONE = {name: form.action for name, form in SETTING_FORMS.items()}


class AboutQuery(DoneQuery, frozen=True, kw_only=True):
    id: str = ""
    """What it is about, where that is there already."""
    plan: str = ""


@routes.get("/settings/{form}")
async def ask_setting(web: Backend, request: Request, form: str, query: AboutQuery) -> Reply:
    """Its fields, and a button."""
    found = _known(form)
    refuse_action(request, _path(found, query.id))
    if form == "member-remove":
        await refuse_above(web, request.identity, query.id)
    return await _page(web, request, form, {"id": query.id, "plan": query.plan})


async def _page(
    web: Backend, request: Request, form: str, given: Json, refused: Reply | None = None
) -> Reply:
    """`given` is what stands in it: as it was typed, where that was refused."""
    from muster.web.pages.render import page

    found = _known(form)
    name, spent = await _of_budget(web, found, given.get("id", ""))
    now_ms = web.clock.wall_ms()
    wanted = found.action._replace(
        fields=tuple(_offered(request, one, now_ms) for one in found.action.fields)
    )
    if form == "token-revoke" and await _own(web, request, given.get("id", "")):
        wanted = wanted._replace(warns="This browser is signed in by it, and is signed out at once.")
    problem = None if refused is None else _told(wanted, msgspec.json.decode(refused.data, type=Problem))
    return page(
        request,
        "set.html",
        status=200 if refused is None else refused.status,
        form=form,
        wanted=wanted,
        id=given.get("id", ""),
        name=name,
        spent=spent,
        given=given,
        once=web.sent_forms.word() if found.secret else "",
        back=_filled(found, found.back, given.get("id", "")),
        problem=problem,
    )


async def _of_budget(web: Backend, found: SettingForm, about: str) -> tuple[str, Json | None]:
    """What people call it, and what it has cost so far.  Raises NotFound and BadInput."""
    from muster.web.pages.render import json_of

    if found.about == "plan":
        plan = (await web.queries.plan(about)).plan
        return plan.name, json_of(plan.usage)
    if found.about == "taskId":
        detail = await web.queries.task(_task_id(about))
        return task_name(detail.task.plan, detail.task.key), json_of(detail.usage)
    return about, None


async def _own(web: Backend, request: Request, about: str) -> bool:
    """That token is the session of the browser that asks, or what has let it in."""
    session = await session_of(web, request)
    return session is not None and about in {str(session.id), str(parent_of(secret_of(request)))}


def _task_id(about: str) -> int:
    """Raises BadInput."""
    if is_number(about):
        return int(about)
    raise BadInput(f"{about[:40]!r} is the number of no task; nothing was changed", "open its page again")


def _offered(request: Request, field: FormField, now_ms: int) -> FormField:
    """Without roles that who asks may not give, and with the time that their own token leaves."""
    if field.name == "hours":
        return field._replace(rule=_hours_rule(request.identity, now_ms))
    if field.choices != _ROLES:
        return field
    return field._replace(choices=tuple(one for one in _ROLES if stands_over(request.identity, one)))


def _hours_rule(who: Caller | None, now_ms: int) -> str:
    """A browser's session lasts 12 h, so tokens that are made in one never last longer than that."""
    if who is None or who.expires_at_ms is None:
        return "such as 720 or 0.5; empty: until it is revoked"
    left_s = (who.expires_at_ms - now_ms) // 1000
    tenths = (left_s - FILLED_IN_S) * 10 // HOUR_S
    most = f"such as 0.1, at most {tenths / 10:g}; empty" if tenths > 0 else "leave it empty"
    return (
        f"{most}: as long as your own session or token, which ends in {age(left_s * 1000)}. "
        "For longer: muster token create NAME --expires 30d"
    )


def _told(action: Action, problem: Problem) -> Json:
    """In words for who has filled in the form, where a field of it is what is wrong."""
    wrong = {one.pointer.removeprefix("/") for one in problem.errors}
    fields = [one for one in action.fields if _API_NAMES.get(one.name, one.name) in wrong]
    rules = "; ".join(f"{one.label}: {one.rule}" for one in fields if one.rule)
    if not rules:
        return {"detail": problem.detail, "hint": problem.hint}
    if problem.status != BadInput.http_status:  # what is wrong with it is no matter of its shape
        return {"detail": problem.detail, "hint": rules}
    return {"detail": f"{rules}. Nothing was changed.", "hint": ""}


@routes.post("/settings/{form}")
async def set_it(web: Backend, request: Request, form: str) -> Reply:
    """Asks the API; a secret that it answers with is shown this once."""
    fields = posted(request)
    found = _known(form)
    about = fields.get("id", "")
    path = _path(found, about)
    back = _filled(found, found.back, about)
    refuse_action(request, path)
    try:
        body = _body(form, fields)
        taken = web.sent_forms.take(request, fields) if found.secret else None
        if found.secret and taken is None:
            return sent_already(request, found.action.label, back, f"/settings/{form}")
        if found.tests:
            reply = await send_test(web, request, path, body, Receiver(found.tests, about))
        else:
            reply = await ask_api(request, path, body)
        if taken and reply.status >= 400 and not _unknown(reply):
            web.sent_forms.give_back(taken)
    except MusterError as error:
        reply = error_reply(error)
    if reply.status >= 400:
        return await _page(web, request, form, fields, reply)
    told: Json = msgspec.json.decode(reply.data) if reply.data else {}
    if "token" in told or "secret" in told:
        return _secret(request, found, told, back)
    return back_to({}, back, done_word(request, form))


def _unknown(reply: Reply) -> bool:
    """It may have been done all the same."""
    return msgspec.json.decode(reply.data, type=Problem).code == CommitUnknown.code


def _secret(request: Request, found: SettingForm, told: Json, back: str) -> Reply:
    from muster.web.pages.render import page

    return page(
        request,
        "secret.html",
        wanted=found.action,
        secret=told.get("token") or told.get("secret"),
        warning=told.get("warning", ""),
        expires_ms=told.get("expiresAtMs"),
        back=back,
    )


def _body(form: str, fields: Mapping[str, str]) -> Json:
    """Raises BadInput."""
    found = _known(form)
    body = body_of_form(found.action, dict(fields))
    if found.about:
        about = fields.get("id", "")
        body[found.about] = _task_id(about) if found.about == "taskId" else about
    if "hours" in body:
        body[_API_NAMES["hours"]] = max(1, round(_number(body.pop("hours"), "hours") * HOUR_S))
    if "usd" in body:
        body[_API_NAMES["usd"]] = round(_number(body.pop("usd"), "dollars") * MICROUSD)
    if form in {"crew-pause", "crew-resume"}:
        body["status"] = CrewStatus.PAUSED if form == "crew-pause" else CrewStatus.RUNNING
    return body


def _number(text: str, what: str) -> float:
    """Raises BadInput."""
    if text.replace(".", "", 1).isdigit() and text.isascii() and len(text) < 12 and float(text) > 0:
        return float(text)
    raise BadInput(
        f"{text[:40]!r} are no {what}; nothing was changed", f"a number above 0, such as {_SUCH_AS[what]}"
    )


def _path(found: SettingForm, about: str) -> str:
    """Raises BadInput."""
    return _filled(found, found.path, about)


def _filled(found: SettingForm, path: str, about: str) -> str:
    """Raises BadInput."""
    if ("{id}" in found.path or found.about) and not about:
        raise BadInput("this form does not say what it is about; nothing was changed", "open its page again")
    return path.replace("{id}", quote(about, safe=""))


def _known(form: str) -> SettingForm:
    """Raises NotFound."""
    if form not in SETTING_FORMS:
        raise NotFound(f"no page has a form {form[:50]!r}", "open /settings")
    return SETTING_FORMS[form]
