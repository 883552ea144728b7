"""aider as an agent: `aider --message-file`, its chat kept in a file of ours and taken up again after a kill.

It prints prose and ends with 0 whatever has happened, so what it printed decides.  A provider that ends its
answer in good order but too early is not noticed by it, nor by us.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from msgspec.structs import replace

from muster.agents.inputs import SHARED, exit_failure, with_result
from muster.agents.provider import refusal
from muster.agents.reports import reports_in
from muster.agents.streaming import EventStream, StreamingAgent, step_of
from muster.config.kinds import GIVEN, USE_MODE, USE_MODEL, AgentKind
from muster.model.errors import Unavailable
from muster.model.limits import Limits
from muster.model.states import ErrorKind
from muster.model.usage import Usage
from muster.ports.agent import AgentEvent, AttemptFolder, Exit, Failed, Job, Launch, Outcome, Step

_LINE_CHARS_MAX = 1 << 16
_EDITS = re.compile(r"^(`{3,}|<source>).*?^(?:`{3,}|</source>)$", re.MULTILINE | re.DOTALL)
"""What files are to hold is a part of its answer, but no word of its own."""
_ERROR = re.compile(r"litellm\.(\w+): ")
_USED = re.compile(
    r"Tokens: ([\d.]+)(k?) sent,(?: .*,)? ([\d.]+)(k?) received\.(?: Cost: \$([\d.]+) message)?"
)
_STATUSES = {
    "AuthenticationError": 401,
    "PermissionDeniedError": 403,
    "NotFoundError": 404,
    "BadRequestError": 400,
    "ContextWindowExceededError": 400,
    "UnprocessableEntityError": 422,
    "RateLimitError": 429,
    "InternalServerError": 500,
    "ServiceUnavailableError": 503,
}


class AiderAgent(StreamingAgent, frozen=True):
    dangers: ClassVar[Mapping[str, str]] = {
        "ask": "it may read the files that it is given, not change anything",
        "code": "it may change files here; it runs no commands",
    }
    usual_env: ClassVar[tuple[str, ...]] = (
        *("ANTHROPIC_API_KEY", "DEEPSEEK_API_KEY", "GEMINI_API_KEY", "OPENAI_API_BASE", "OPENAI_API_KEY"),
        *("OPENROUTER_API_KEY", "AIDER_MODEL"),
    )
    config_env: ClassVar[str] = SHARED
    names_session: ClassVar[bool] = True
    interrupts: ClassVar[bool] = False

    def launch(self, job: Job, folder: AttemptFolder, *, cwd: Path, extra_env: Mapping[str, str]) -> Launch:
        try:
            self._chats(self._env()).mkdir(parents=True, exist_ok=True)
        except OSError as exc:
            raise Unavailable(f"cannot make the folder of aider's chats: {exc}") from exc
        launch = super().launch(job, folder, cwd=cwd, extra_env=extra_env)
        # Where there is no repository it would make one.
        known = any(map(_is_repository, (cwd.absolute(), *cwd.absolute().parents)))
        return launch if known else replace(launch, argv=(*launch.argv, "--no-git"))

    def arguments(self, session_key: str | None, *, resumes: bool) -> list[str]:
        argv = ["--message-file", "/dev/stdin", "--yes-always"]
        argv += ["--chat-mode", "ask"] if self.mode == "ask" else []
        # Nothing but the work belongs into the repository: commits are Muster's, and its caches lie in the tree.
        argv += ["--no-auto-commits", "--no-dirty-commits", "--no-gitignore", "--map-tokens", "0"]
        argv += ["--no-pretty", "--no-fancy-input", "--no-suggest-shell-commands", "--no-detect-urls"]
        argv += ["--no-check-update", "--no-show-release-notes", "--no-analytics", "--no-show-model-warnings"]
        argv += ["--input-history-file", "/dev/null"]
        argv += ["--chat-history-file", str(self._chats(self._env()) / f"{session_key}.md")]
        argv += ["--restore-chat-history"] if resumes else []
        return [*argv, *self.model, *self.config.args]

    def knows(self, session_key: str, env: Mapping[str, str]) -> bool:
        return (self._chats(env) / f"{session_key}.md").is_file()

    def stream(self, job: Job, launch: Launch) -> AiderStream:  # noqa: ARG002
        return AiderStream(None, launch.limits)

    def _chats(self, env: Mapping[str, str]) -> Path:
        return Path(env.get(SHARED) or env["HOME"]).absolute() / ".aider" / "muster"


def _is_repository(folder: Path) -> bool:
    """Not an empty `.git`, which a sandbox may leave behind: git takes that for none."""
    return (folder / ".git" / "HEAD").exists() or (folder / ".git").is_file()


KIND = AgentKind(
    program="aider",
    make=AiderAgent,
    install="pipx install aider-chat",
    modes=tuple(AiderAgent.dangers),
    levels={"read": "ask", "edit": "code", "all": "code"},
    refused={
        **dict.fromkeys(("--chat-mode", "--edit-format", "--architect"), USE_MODE),
        **dict.fromkeys(("-m", "--message", "--msg", "-f", "--message-file", "--yes", "--yes-always"), GIVEN),
        **dict.fromkeys(("--chat-history-file", "--restore-chat-history", "--pretty"), GIVEN),
        **dict.fromkeys(("--auto-commits", "--dirty-commits"), "leave it out: Muster commits what is done"),
        "--model": USE_MODEL,
    },
)


class AiderStream(EventStream):
    """Reads what it prints for people."""

    def __init__(self, mark: Usage | None, limits: Limits) -> None:
        super().__init__(mark, limits)
        self._rest = b""
        self._said: list[str] = []
        self._error: list[str] = []
        """The provider's last refusal, line by line; empty once it has answered."""

    def feed(self, data: bytes) -> list[AgentEvent]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._rest = self._rest[:_LINE_CHARS_MAX]
        return [event for line in lines for event in self._words(line.decode(errors="replace").rstrip())]

    def _words(self, line: str) -> list[AgentEvent]:
        if line.startswith("Applied edit to "):
            return [Step(step_of("edit", {"path": line.removeprefix("Applied edit to ")}))]
        if used := _USED.match(line):
            self._count(used)
            said, self._said, self._error = "\n".join(self._said).strip(), [], []
            self.ended = True
            self._text = said
            return [*reports_in(_EDITS.sub("", said))]
        if _ERROR.match(line):
            self._error, self._said = [line], []
            return [Step(step_of("the provider", {"command": line}))]
        if self._error:
            self._error.append(line)
        elif line.startswith("Repo-map: "):
            self._said = []  # the end of its greeting
        else:
            self.ended = False
            self._said = [*self._said[-1000:], line]
        return []

    def _count(self, used: re.Match[str]) -> None:
        sent, received = (round(float(used[n]) * (1000 if used[n + 1] else 1)) for n in (1, 3))
        before = self._total or Usage()
        cost = round(float(used[5]) * 1e6) if used[5] else 0
        self._total = Usage(
            input_tokens=before.input_tokens + sent,
            output_tokens=before.output_tokens + received,
            cost_microusd=(before.cost_microusd or 0) + cost or None,
            estimated=True,
        )

    def _outcome(self, exit: Exit, folder: AttemptFolder) -> Outcome:
        if self._error:
            name = _ERROR.match(self._error[0])
            return refusal(" ".join(self._error), status=_STATUSES.get(name[1]) if name else None)
        if exit.code != 0 and not exit.given_up:
            return exit_failure(exit, folder, self._limits)
        if self._total is None:
            return Failed(kind=ErrorKind.CRASH, message="exit code 0, but aider tells of no answer")
        return with_result(folder, self._text)
