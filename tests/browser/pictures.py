"""The pictures of the documentation, made of real pages: `./run pictures`."""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import browsers
from playwright.sync_api import Browser, sync_playwright

from far_servers import SECRET, FarOwner
from muster.agents.claude_code import entries
from muster.agents.transcript import Reader
from muster.model import commands as c
from muster.model.refs import plan_branch
from muster.model.states import ErrorKind
from muster.model.task import Now
from muster.model.usage import Usage
from muster.runtimes.local import SystemClock
from reviewed_work import with_repository

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
SIZE = {"width": 1280, "height": 800}
BYTES_MAX = 150_000
PICTURES = {
    "overview": "/",
    "inbox": "/inbox",
    "board": "/tasks?view=board",
    "plan": "/plans/billing",
    "task": "/tasks/{api}",
    "review": "/tasks/{tests}/review",
}
"""Each with its page; a word in braces stands for the number of that task."""

_OLD = "def rounded(total):\n    return round(total, 2)\n"
_NEW = (
    "from decimal import ROUND_HALF_EVEN, Decimal\n\nCENT = Decimal('0.01')\n\n\n"
    "def rounded(total: Decimal) -> Decimal:\n"
    '    """To a cent, half to even."""\n'
    "    return total.quantize(CENT, ROUND_HALF_EVEN)\n"
)
_TEST = (
    "from decimal import Decimal\n\nfrom hypothesis import given\nfrom hypothesis.strategies import decimals\n\n"
    "from money import rounded\n\n\n@given(decimals(0, 10**6, places=4))\n"
    "def test_it_is_off_by_half_a_cent_at_most(total: Decimal) -> None:\n"
    "    assert abs(rounded(total) - total) <= Decimal('0.005')\n"
)
_SAID = (
    {"text": "I read the model first, then I write the endpoints and their tests."},
    {"name": "Read", "input": {"file_path": "shop/model.py"}},
    {"name": "Edit", "input": {"file_path": "shop/api.py", "old_string": "", "new_string": "..."}},
    {"name": "Bash", "input": {"command": "pytest -q tests/test_api.py"}},
    {"text": "Four of five pass. An empty invoice gets a 500 instead of a 422: I mend that next."},
)
_MINUTE_MS = 60_000


def _spec(key: str, title: str, feature: str, *after: str, **more: Any) -> c.Spec:
    epic = "Shop" if feature in {"Pages", "Docs"} else "Billing"
    return c.Spec(title=title, key=key, epic=epic, feature=feature, depends_on=after, **more)


BILLING = (
    _spec("model", "Invoice model with tax and rounding", "Core"),
    _spec("schema", "Tables of the store", "Core", "model"),
    _spec("store", "Store invoices", "Core", "schema"),
    _spec("import", "Import the invoices of last year", "Core", "store"),
    _spec("api", "REST endpoints", "Service", "model", description="CRUD below /invoices, with tests."),
    _spec("limits", "Limit requests per customer", "Service", "api"),
    _spec("tests", "Property tests of rounding", "Quality", "model", review="person"),
    _spec("load", "Load test", "Quality", "api", "store", agent="codex"),
    _spec("page", "Invoice page", "Pages", "api"),
    _spec("mail", "E-mail an invoice", "Pages", "store"),
    _spec("docs", "Chapter of the handbook", "Docs", "page", "limits"),
)
SEARCH = (
    c.Spec(title="Index of products", key="index", max_retries=0, agent="codex"),
    c.Spec(title="Search page", key="query", depends_on=("index",)),
)


class _PastClock(SystemClock):
    """Tells an earlier time of day, until the story has come to now."""

    ahead_ms = 0

    def now(self) -> Now:
        now = super().now()
        return Now(now.wall_ms + self.ahead_ms, now.mono_ms, now.boot_id)


class Story:
    """An hour of a crew, played in a second."""

    def __init__(self, owner: FarOwner, clock: _PastClock) -> None:
        self.owner = owner
        self._clock = clock
        self._held: dict[str, Any] = {}
        self._claims = 0

    def play(self) -> None:
        self.owner.register(slots=4, agents=("claude", "codex"), general=("claude",))
        self._add(
            "login", (c.Spec(title="Sign-in form", key="form"), c.Spec(title="Sessions", key="sessions"))
        )
        self._later(8)
        self._done("form", 310_000)
        self._done("sessions", 250_000)
        self._add("billing", BILLING)
        self._later(9)
        self._done("model", 420_000)
        self._later(4)
        self._done("schema", 180_000)
        self._later(6)
        self._done("store", 380_000)
        self._later(6)
        self._held_back("tests")
        self._later(3)
        self._ask("import", "14 invoices have no customer. Leave them out, or file them under “unknown”?")
        self._add("search", SEARCH)
        self._later(4)
        self._fail("index", "exit code 1: the catalogue has no column `weight`")
        self._later(3)
        self._tell("mail", percent=40, step="writes the template")
        self._talk("api")
        self._clock.ahead_ms = 0
        self._tell("api", percent=65, step="mends the empty invoice")

    def _later(self, minutes: float) -> None:
        self._clock.ahead_ms += round(minutes * _MINUTE_MS)

    def _add(self, plan: str, tasks: tuple[c.Spec, ...]) -> None:
        self.owner.do(c.Enqueue(plan=plan, source=None, tasks=tasks, actor="user:ann"))
        self._begin()

    def _begin(self) -> None:
        """What can be."""
        self._claims += 1
        for key, job in self.owner.claim(f"claim-{self._claims}").items():
            self._held[key] = job
            self.owner.begin(job, token=key)

    def _named(self, key: str) -> dict[str, int]:
        return {"task_id": self._held[key].task_id, "epoch": 1}

    def _paid(self, key: str, microusd: int) -> None:
        usage = Usage(input_tokens=microusd // 3, output_tokens=microusd // 40, cost_microusd=microusd)
        self.owner.do(c.Account(**self._named(key), usage=usage))

    def _done(self, key: str, microusd: int) -> None:
        self._paid(key, microusd)
        self.owner.do(c.Complete(**self._named(key), exit_code=0))
        self._begin()

    def _fail(self, key: str, why: str) -> None:
        self._paid(key, 90_000)
        self.owner.do(c.Fail(**self._named(key), kind=ErrorKind.CRASH, message=why))
        self._begin()

    def _held_back(self, key: str) -> None:
        self._paid(key, 290_000)
        self.owner.do(
            c.Fail(**self._named(key), kind=ErrorKind.REVIEW, message="its work is for you to review")
        )
        self._begin()

    def _ask(self, key: str, question: str) -> None:
        self.owner.do(c.Ask(**self._named(key), question=question))
        self._begin()

    def _tell(self, key: str, **what: Any) -> None:
        self.owner.do(c.Progress(**self._named(key), **what))

    def _talk(self, key: str) -> None:
        self._paid(key, 240_000)
        parts = [{"type": "tool_use" if "name" in part else "text", **part} for part in _SAID]
        lines = [json.dumps({"type": "assistant", "message": {"content": [part]}}) + "\n" for part in parts]
        self.owner.log(self._held[key].task_id, 1, "".join(lines).encode())


@contextlib.contextmanager
def scene(folder: Path) -> Iterator[FarOwner]:
    """A server whose plan is under way."""
    folder.mkdir(parents=True)
    owner = FarOwner(folder)
    owner.clock = clock = _PastClock("boot")
    owner.served.reader = lambda agent, _: Reader((entries,) if agent == "claude" else ())
    clock.ahead_ms = -43 * _MINUTE_MS
    owner.start()
    try:
        owner.token(SECRET)
        Story(owner, clock).play()
        repo = with_repository(owner)
        repo.publish("billing", "model", {"money.py": _OLD})
        repo.leave(
            "billing",
            "tests",
            1,
            {"money.py": _NEW, "tests/test_money.py": _TEST},
            onto=plan_branch("billing"),
        )
        yield owner
    finally:
        owner.close()
        assert owner.network is not None
        owner.network.close()


def pictures(browser: Browser, owner: FarOwner) -> Iterator[tuple[str, bytes]]:
    """Each by its name."""
    numbers = {key: task.id for key, task in owner.tasks().items()}
    with browser.new_context(base_url=owner.url, viewport=SIZE, color_scheme="light") as context:
        page = context.new_page()
        page.goto(browsers.sign_in_path(owner))
        page.wait_for_url(f"{owner.url}/")
        for name, path in PICTURES.items():
            page.goto(path.format_map(numbers))
            if page.locator("body[data-stream]:not([data-still])").count():
                page.locator("#link").get_by_text("live", exact=True).wait_for()
            yield name, page.screenshot()


def main() -> int:
    FOLDER.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        scene(Path(folder) / "shop") as owner,
        sync_playwright() as playwright,
    ):
        try:
            browsers.chromium()
        except browsers.NotInstalled as missing:
            print(missing, file=sys.stderr)
            return 1
        with browsers.launched(playwright) as browser:
            for name, data in pictures(browser, owner):
                (FOLDER / f"{name}.png").write_bytes(data)
                print(f"{name}.png  {len(data) // 1000} KB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
