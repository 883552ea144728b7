"""Who works here, what was written of it, and who may come in: agents, audit, settings."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta
from msgspec.structs import replace

from muster.model.access import BROWSER
from muster.model.events import Level
from muster.web.audit import levels_from
from muster.web.backend import Backend
from muster.web.channels import channels
from muster.web.http import Reply, Request
from muster.web.pages.live import live_of
from muster.web.pages.overview import DoneQuery
from muster.web.pages.sign_in import session_of
from muster.web.rights import stands_over
from muster.web.routes import Routes
from muster.web.visits import parent_of, secret_of

routes = Routes(pages=True)

ROWS_MAX = 500


class AuditPageQuery(DoneQuery, frozen=True, kw_only=True):
    level: str = ""
    """This one and worse; empty: all."""
    subject: Annotated[str, Meta(max_length=200)] = ""
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


@routes.get("/crew")
async def crew(web: Backend, request: Request, query: DoneQuery) -> Reply:
    """Agents, workers, providers and their quotas, and what agents may do."""
    from muster.web.pages.render import json_of, page
    from muster.web.pages.setting_forms import DONE

    live = await live_of(web)
    plans = {plan.id: plan.name for plan in await web.queries.plans()}
    permissions = [json_of(one) for one in (await web.queries.permissions())[:ROWS_MAX]]
    return page(
        request,
        "crew.html",
        live=live,
        done=query.done,
        done_actions=DONE,
        crew=json_of(await web.queries.status()),
        pools={name: json_of(pool) for name, pool in sorted((await web.queries.pools()).items())},
        permissions=[{**one, "plan": plans.get(one["planId"], "")} for one in permissions],
    )


@routes.get("/audit")
async def audit(web: Backend, request: Request, query: AuditPageQuery) -> Reply:
    """The newest events, the newest first."""
    from muster.web.pages.render import json_of, page

    live = await live_of(web)
    known = [level.value.lower() for level in Level]
    asked = query.level
    query = replace(query, level=asked.lower() if asked.lower() in known else "")
    events = await web.reads.audit_events(
        task_id=None,
        levels=levels_from(query.level or None),
        since_ms=0,
        limit=query.limit,
        subjects=(query.subject.strip(),) if query.subject.strip() else (),
    )
    return page(
        request,
        "audit.html",
        live=live,
        done="",
        events=[json_of(event) for event in reversed(events)],
        query=query,
        levels=known,
        no_level=asked if asked and not query.level else "",
        report=None,
    )


@routes.get("/audit/verify")
async def proved(web: Backend, request: Request) -> Reply:
    """Whether anybody has changed what was written."""
    from muster.web.pages.render import json_of, page

    report = json_of(await web.owner.verify_audit(web.workspace_id))
    return page(request, "audit_report.html", report=report)


@routes.get("/settings")
async def settings(web: Backend, request: Request, query: DoneQuery) -> Reply:
    """Members, tokens, webhooks, channels and budgets: of each what who asks may see."""
    from muster.web.pages.render import json_of, may_of, page
    from muster.web.pages.setting_forms import DONE

    live = await live_of(web)
    may = may_of(request)
    tokens = await web.reads.tokens() if may("GET", "/api/v1/tokens") else None
    hooks = await web.reads.webhooks() if may("GET", "/api/v1/webhooks") else None
    members = await web.reads.members()
    roles = {one.name: one.role for one in members}
    session = await session_of(web, request)
    told = await channels(web) if may("GET", "/api/v1/channels") else None
    return page(
        request,
        "settings.html",
        live=live,
        channels=None if told is None else [json_of(one) for one in told],
        done=query.done,
        done_actions=DONE,
        members=[json_of(member) for member in members],
        tokens=None if tokens is None else [json_of(one) for one in tokens[-ROWS_MAX:]],
        removable={one.name for one in members if stands_over(request.identity, one.role)},
        revocable={
            one.id
            for one in tokens or ()
            if stands_over(request.identity, one.role, roles.get(one.member, one.role))
        },
        browser=BROWSER,
        own=session.id if session else 0,
        let_in_by=parent_of(secret_of(request)) if session else 0,
        webhooks=None if hooks is None else [json_of(hook) for hook in hooks if not hook.channel],
        plans=[json_of(plan) for plan in (await web.queries.plans())[:ROWS_MAX]],
    )
