"""Members of a workspace and their tokens."""

from __future__ import annotations

import pytest
from engine_rig import Rig

from muster.model import commands as c
from muster.model.access import Role
from muster.model.errors import Conflict


def test_who_asks_for_too_much_is_first_told_of_the_role_that_the_member_has(rig: Rig) -> None:
    rig.do(c.SetMember(name="vic", role=Role.VIEWER, actor="user:ann"))
    token = c.AddToken(
        name="t",
        member="vic",
        role=Role.MEMBER,
        scopes=(),
        expires_s=None,
        token_hash="0" * 64,
        actor="user:ann",
    )
    with pytest.raises(Conflict, match="cannot be MEMBER") as refused:
        rig.do(token)
    assert (refused.value.hint or "").startswith(
        "--role VIEWER; only if they are to have more: muster member"
    )
