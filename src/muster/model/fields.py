"""What people may say of a task: each field once.

`task.TaskFields` says what a field holds, this table how it is written and what it means: as an attribute of a
plan's box, as an option of `muster task add` and `edit`, as a field of the API (its name in camelCase).  The
reference pages are made from it.
"""

from __future__ import annotations

from muster.model import kinds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from muster.model.kinds import Kind


class Field:
    def __init__(
        self,
        name: str,
        kind: Kind,
        says: str,
        default: str = "",
        *,
        usual: Any = None,
        attribute: str = "",
        option: str = "",
        metavar: str = "",
        span: str = "",
    ) -> None:
        """`default` says what holds without it, `usual` is that as a value.  `attribute` is its name in a plan's
        box; where it is empty, something else says it there.  `span` is for a point in time: the field that says
        the same as a duration, which may be written instead."""
        self.name = name
        self.kind = kind
        self.says = says
        self.default = default
        self.usual = usual
        self.attribute = attribute
        self.option = option
        self.metavar = metavar or kind.metavar
        self.span = span

    @property
    def api(self) -> str:
        return camel(self.name)

    def read(self, text: str) -> dict[str, Any]:
        """By field, what `text` says.  Raises ValueError."""
        if self.span:
            try:
                return {self.span: kinds.SECONDS.read(text)}
            except ValueError:
                pass
        return {self.name: self.kind.read(text)}

    @property
    def expected(self) -> str:
        return f"{kinds.SECONDS.expected}, or {self.kind.expected}" if self.span else self.kind.expected


def camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


FIELDS: tuple[Field, ...] = (
    Field("title", kinds.TEXT, "what it is called", option="title"),
    Field("description", kinds.TEXT, "what the agent is told; - reads stdin", usual="", option="prompt"),
    Field(
        "depends_on",
        kinds.KEYS,
        "what must be done first",
        "nothing",
        usual=(),
        attribute="after",
        option="after",
    ),
    Field(
        "agent",
        kinds.NAME,
        "the one agent that may do it",
        "`agent` of `muster.toml`, or any that is configured",
        attribute="agent",
        option="agent",
        metavar="AGENT",
    ),
    Field(
        "model",
        kinds.NAME,
        "the model that its agent is to use; an agent that cannot be told one refuses the task",
        "`model` of the agent",
        attribute="model",
        option="model",
        metavar="M",
    ),
    Field(
        "system_prompt",
        kinds.TEXT,
        "what is added to the agent's own instructions; an agent that cannot be told refuses the task",
        "nothing",
        usual="",
        attribute="system-prompt",
        option="system-prompt",
    ),
    Field(
        "profile",
        kinds.NAME,
        "the kind of agent that is preferred",
        "the one that its words suggest, or `general-purpose`",
        attribute="profile",
        option="profile",
        metavar="P",
    ),
    Field(
        "capabilities",
        kinds.NAMES,
        "what the agent must offer; other agents do not get it",
        "anything",
        usual=(),
        attribute="cap",
        option="cap",
        metavar="C,...",
    ),
    Field(
        "target",
        kinds.NAME,
        "what it is about (a host, a repository): only an agent with it in its `targets` gets it",
        "anything",
        attribute="target",
        option="target",
        metavar="T",
    ),
    Field(
        "priority",
        kinds.PRIORITY,
        "1 to 10, high first; `P0` is 10, `P1` 7, `P2` 4",
        "5",
        usual=5,
        attribute="priority",
        option="priority",
    ),
    Field(
        "sort_key",
        kinds.ORDER,
        "the order among tasks of one priority, low first",
        "0",
        usual=0,
        attribute="sort",
        option="sort",
    ),
    Field(
        "timeout_s",
        kinds.SECONDS,
        "how long one run may take: `90s`, `30m`, `2h`, `1d`; a bare number is seconds",
        "`[task] timeout`, 2 h",
        attribute="timeout",
        option="timeout",
    ),
    Field(
        "estimated_s",
        kinds.SECONDS,
        "how long one run should take; half an hour past it the agent gets a notice, "
        "after ten more silent minutes it is stopped",
        "no limit but `timeout`",
        attribute="estimated",
        option="estimated",
    ),
    Field(
        "max_retries",
        kinds.COUNT,
        "runs after the first one",
        "`[task] retries`, 3",
        attribute="retries",
        option="retries",
    ),
    Field(
        "retry_backoff_s",
        kinds.SECONDS,
        "how long its first retry waits at most; each further one twice as long, up to ten times that",
        "`[task] backoff`, 30 s",
        attribute="backoff",
        option="backoff",
    ),
    Field(
        "check_command",
        kinds.TEXT,
        "the shell command that its work has to pass before it is done; `none`: no check",
        "`check` of the plan, of its agent, or of `[task]`",
        usual="",
        attribute="check",
        option="check",
        metavar="COMMAND",
    ),
    Field(
        "touches",
        kinds.TEXT,
        "files that it changes: `src/api/**,docs/*.md`; of tasks that name the same ones, one runs at a time",
        "anything, beside any other",
        usual="",
        attribute="touches",
        option="touches",
        metavar="GLOB,...",
    ),
    Field(
        "review",
        kinds.TEXT,
        "who has to accept its work before it is done: `person`, or the name of an agent; `none`: nobody",
        "`review` of its agent, or of `[task]`",
        usual="",
        attribute="review",
        option="review",
        metavar="WHO",
    ),
    Field(
        "changes",
        kinds.CHANGES,
        "`none` where it is done without changing a file",
        "an agent with `writes = true` that changes nothing needs a review",
        usual="",
        attribute="changes",
        option="changes",
    ),
    Field(
        "limit_key",
        kinds.NAME,
        "tasks with the same key share a number of places from `[limits]`",
        "none",
        attribute="limit",
        option="limit-key",
        metavar="K",
    ),
    Field(
        "on_failed",
        kinds.ON_FAILED,
        "`block`, `skip` or `run` when a task before it has failed",
        "`block`",
        usual="block",
        attribute="on-failed",
        option="on-failed",
    ),
    Field(
        "delay_s",
        kinds.SECONDS,
        "how long after it was added it may start",
        "at once",
        attribute="delay",
        option="delay",
    ),
    Field(
        "not_before_ms",
        kinds.MOMENT,
        "when it may start: `2027-01-31`, `2027-01-31T18:00`, `2027-01-31T18:00Z`; local without a zone",
        "at once",
        attribute="not-before",
        option="not-before",
    ),
    Field(
        "expires_at_ms",
        kinds.MOMENT,
        "it fails if no run has started by then: a duration after it was added, or a time",
        "never",
        attribute="expires",
        option="expires",
        metavar="TIME",
        span="expires_s",
    ),
    Field(
        "parent",
        kinds.KEY,
        "the task that it belongs to; no dependency",
        "the task whose box it stands under",
        attribute="parent",
    ),
    Field(
        "tags",
        kinds.NAMES,
        "words to find it by (`muster task list --tag`)",
        "none",
        usual=(),
        attribute="tags",
        option="tag",
        metavar="T,...",
    ),
    Field(
        "metadata",
        kinds.PAIRS,
        "kept with the task, for other programs: `customer=acme`",
        "none",
        usual={},
        attribute="meta",
        option="meta",
    ),
    Field(
        "input_context",
        kinds.OBJECT,
        "what its agent is to work with, secrets too: a JSON object, in the file `$MUSTER_INPUT_CONTEXT_FILE`",
        "nothing",
        usual={},
        option="input-context",
        metavar="JSON|@FILE|-",
    ),
)
ATTRIBUTES: dict[str, Field] = {field.attribute: field for field in FIELDS if field.attribute}
"""Everything that may stand between the braces of a box, beside `#id`."""
OPTIONS: tuple[Field, ...] = tuple(field for field in FIELDS if field.option)

FILLED = frozenset({"timeout_s", "max_retries"})
"""Of which settings say what they are where a task says nothing."""
