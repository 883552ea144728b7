"""Which right an operation needs; what is not named here needs the highest one."""

from __future__ import annotations

from collections.abc import Sequence

from muster.model.access import Caller, Right, Role, rights_of
from muster.model.errors import Forbidden
from muster.model.rows import DEFAULT_WORKSPACE
from muster.web.open_paths import FOR_PROGRAMS

_CHANGES = {
    **dict.fromkeys(("agent-tasks", "plans", "claims", "attempts", "person"), Right.WORK),
    **dict.fromkeys(
        (
            "agents",
            "budgets",
            "channels",
            "coordinator",
            "crew",
            "permissions",
            "pools",
            "secrets",
            "webhooks",
            "workers",
        ),
        Right.CREW,
    ),
    **dict.fromkeys(("members", "tokens"), Right.PEOPLE),
}
"""By the resource below `/api/v1`: to change something of it."""
_SECRET = frozenset({"channels", "secrets", "tokens", "webhooks"})
"""To read of these is to need the same right as to change them."""

_OF_THE_FOLDER = (["merge"], ["pull-request"])
"""Of a task or a plan: what changes the branch that whoever runs the server has checked out, or is pushed by
their login."""

_TO_BEGIN = frozenset({"/worker/v1/register", "/worker/v1/token"})
"""Of workers, with what they were started with; everything else is said with the token that these give them."""


def right_for(method: str, parts: Sequence[str]) -> Right:
    """`parts` are those of the path, the first one empty."""
    if parts[1] not in FOR_PROGRAMS:
        return Right.READ  # what its form wants is asked of the API, which needs the right to that
    if list(parts[1:3]) != ["api", "v1"]:
        return Right.READ if method == "GET" and parts[1] not in {"worker", "attempt"} else Right.SERVE
    resource = parts[3] if len(parts) > 3 else ""
    if (method == "GET" and resource not in _SECRET) or resource == "sign-in-links":
        return Right.READ  # a link gives what its asker has
    if resource == "agents" and (method == "PUT" or parts[-1] in {"heartbeat", "claim"}):
        return Right.WORK  # to serve one is to claim
    if resource == "agents" and parts[4:5] == ["tasks"]:
        return Right.WORK
    if resource in {"agent-tasks", "plans"} and parts[5:] in _OF_THE_FOLDER:
        return Right.CREW
    return _CHANGES.get(resource, Right.STORE)


def stands_over(who: Caller | None, *roles: Role) -> bool:
    """Whether who asks may give and take these roles; None: whoever runs it."""
    return who is None or all(who.role.covers(one) for one in roles)


def refuse(who: Caller, method: str, parts: Sequence[str]) -> None:
    """Raises Forbidden."""
    if who.attempt is not None and tuple(parts[1:5]) == ("attempt", "v1", *who.attempt):
        return  # its own
    if who.agent and tuple(parts[1:5]) == ("api", "v1", "agents", who.agent):
        return
    needed = right_for(method, parts)
    if needed not in who.rights:
        raise _has_not(who, needed)
    if parts[1] == "worker":
        _refuse_other_token(who, "/".join(parts))


def _has_not(who: Caller, needed: Right) -> Forbidden:
    """Told by what stands in the way: the token that was used, or what its member may at all."""
    if who.worker is not None:
        return Forbidden(
            f"the token of {who.worker.worker_id} counts only for what workers say; nothing was changed",
            "ask with the token of a member",
        )
    guest = who.workspace_id != DEFAULT_WORKSPACE
    if who.member_role and needed in rights_of(who.member_role, (), guest=guest):
        role = "" if needed in rights_of(who.role, (), guest=guest) else f" as {who.role}"
        only = f"{role} for: {', '.join(who.scopes)}" if who.scopes else role
        return Forbidden(
            f"this needs the right to {needed}, and this token counts only{only}; nothing was changed",
            another_token(who.actor, who.member_role),
        )
    helper = "an OWNER of workspace default" if needed is Right.STORE else "an ADMIN of the workspace"
    return Forbidden(
        f"this needs the right to {needed}, which {who.actor} has not here; nothing was changed",
        f"ask {helper}: muster member set, muster token create",
    )


def another_token(actor: str, role: Role) -> str:
    """The hint where it is the token that does not count for it; `role` is its member's."""
    member = actor.removeprefix("user:")
    how = f"muster token create NAME --member {member} --role {role}"
    return f"use another token of {member}, or have one made: {how}"


def _refuse_other_token(who: Caller, path: str) -> None:
    """Raises Forbidden for one of a member in place of a worker's own, and the other way round."""
    begins = path in _TO_BEGIN
    if begins and who.worker is not None:
        raise Forbidden(
            f"the token of {who.worker.worker_id} gives it no other one; nothing was changed",
            "ask with the member's token, and the key of the folder, that the worker was started with",
        )
    if not begins and who.worker is None:
        raise Forbidden(
            f"this takes a worker's own token, and that of {who.actor} is a member's; nothing was changed",
            "POST /worker/v1/register answers with it; muster worker start does so",
        )
