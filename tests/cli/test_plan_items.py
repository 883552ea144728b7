"""A plan as work items, on every surface, there and back."""

from __future__ import annotations

import json

from muster.model import commands as c
from muster.model.usage import Usage

PLAN = """# Shop
## Cart
### Model
- [ ] P0: Lines {#lines}
  Each with a price.
- [ ] Totals {#totals after=lines profile=backend-development tags=x,y estimated=90m}
## Pay
- [ ] Card {#card}
"""


COPY = """# shop

## Cart

### Model

- [x] Lines {#lines priority=10}

  Each with a price.

- [ ] Totals {#totals after=lines profile=backend-development estimated=90m tags=x,y}

## Pay

- [ ] Card {#card}
"""


def add(cli, owner) -> None:
    (owner.root / "muster.toml").write_text('agent = "claude"\n[agents.claude]\ncommand = ["cat"]\n')
    (owner.root / "shop.md").write_text(PLAN)
    assert cli("plan", "add", "shop.md").code == 0
    owner.do(
        c.Register(
            worker_id="worker-abcdefgh", hostname="h", pid=1, pid_start=1, boot_id="boot", slots=9,
            agents=("claude",), general=("claude",),
        )
    )  # fmt: skip
    job = owner.claim("r1")["lines"]
    owner.begin(job)
    spent = Usage(input_tokens=1000, output_tokens=50, cost_microusd=12_300)
    owner.do(c.Account(task_id=job.task_id, epoch=1, usage=spent))
    owner.do(c.Complete(task_id=job.task_id, epoch=1, exit_code=0))


def test_show_adds_up_and_all_surfaces_agree(cli, empty):
    add(cli, empty)
    lines = cli("plan", "show", "shop").out.splitlines()
    assert [line.split()[:6] for line in lines if line.startswith(("Cart", "  Model", "Pay"))] == [
        ["Cart", "in", "progress", "1", "of", "2"],
        ["Model", "in", "progress", "1", "of", "2"],
        ["Pay", "in", "progress", "0", "of", "1"],
    ]
    assert "1,050" in lines[4] and "$0.0123" in lines[4]
    items = json.loads(cli("plan", "show", "shop", "--json").out)["items"]
    assert items == json.loads(cli("api", "GET", "/api/v1/plans/shop/items").out)
    assert [(item["id"], item["parent"], item["percent"]) for item in items] == [
        ("E001", None, 50),
        ("F001", "E001", 50),
        ("lines", "F001", 100),
        ("totals", "F001", 0),
        ("E002", None, 0),
        ("card", "E002", 0),
    ]


def test_items_written_as_json_are_read_as_the_same_plan(cli, empty):
    add(cli, empty)
    exported = cli("plan", "export", "shop", "--items").out
    told = {item["id"]: item for item in json.loads(exported)["items"]}
    assert told["lines"]["priority"] == "P0" and told["lines"]["status"] == "completed"
    assert told["totals"] == told["totals"] | {
        "blocked_by": ["lines"],
        "parent_id": "F001",
        "estimated_hours": 1.5,
    }
    assert (told["E001"]["tokens"], told["E001"]["cost_usd"], told["E001"]["percent_complete"]) == (
        1050,
        0.0123,
        50,
    )
    copy = cli("plan", "import", "-", "--out", "-", stdin=exported.encode()).out
    assert copy.endswith(COPY)
