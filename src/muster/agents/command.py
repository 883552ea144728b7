"""Any command as an agent: its exit code says how it went, `result.json` what came out."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from msgspec import Struct

from muster.agents.handover import begins_anew, handed_over
from muster.agents.inputs import (
    base_env,
    check_binary,
    input_text,
    job_env,
    last_words,
    out_of_memory,
    printable,
    prompt_of,
    read_result,
    refuse_unpassable,
    shorten,
    signal_cause,
    stopped_by_us,
    tail,
    write_inputs,
    write_private,
)
from muster.agents.provider import refusal
from muster.agents.transcript import Reader
from muster.config.settings import AgentConfig
from muster.hosts.oom import oom_kills
from muster.model.errors import AgentUnfit, BadInput, Unavailable
from muster.model.states import ErrorKind
from muster.ports.agent import AgentEvent, AttemptFolder, Exit, Failed, Home, Job, Launch, Outcome

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})[^\n]*\n(.*?)^ {0,3}\1[`~]*[ \t]*$", re.MULTILINE | re.DOTALL)


def script_of(prompt: str) -> str:
    """People put commands into fences; to a shell the fence itself would be a command substitution."""
    blocks = [match[2] for match in _FENCE.finditer(prompt + "\n")]
    return "\n".join(blocks) if blocks else prompt


EXIT_CODES: Mapping[int, ErrorKind] = MappingProxyType(
    {64: ErrorKind.INVALID, 65: ErrorKind.INVALID, 78: ErrorKind.INVALID}
)
_PLACEHOLDER = re.compile(r"\{(prompt|prompt_file|task|title|place|model|system_prompt)\}")


class CommandAgent(Struct, frozen=True):
    """An agent that is one command.  Exit code 0 is success."""

    config: AgentConfig
    home: Home | None = None
    """Where that is not the user's."""

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def about(self) -> str:
        return f"runs {' '.join(self.config.command)} as your user"

    def check(self) -> None:
        """Raises AgentUnfit where the binary cannot be found or executed on this host."""
        if not self.config.command:
            raise AgentUnfit(f"agent {self.name} has no command", "set its command in the configuration")
        check_binary(self.name, self.config.command[0], self._base_env()["PATH"])

    def launch(self, job: Job, folder: AttemptFolder, *, cwd: Path, extra_env: Mapping[str, str]) -> Launch:
        """Writes the prompt and the checkpoint into `folder` and says what to start.

        Raises AgentUnfit where there is no command, BadInput where the prompt or title cannot be passed on,
        Unavailable where the folder cannot be written.
        """
        if not self.config.command:
            raise AgentUnfit(f"agent {self.name} has no command", "set its command in the configuration")
        refuse_unpassable(job)
        given = input_text(job, folder)
        prompt = f"{prompt_of(job).rstrip()}\n\n{given}\n" if given else prompt_of(job)
        try:
            told = handed_over(job, folder, prompt, Reader)
            prompt = f"{prompt.rstrip()}\n\n{told}\n" if told else prompt
            write_inputs(job, folder, prompt=prompt, home=self.home)
        except OSError as exc:
            raise Unavailable(f"cannot write the attempt's folder {folder.path}: {exc}") from exc
        known = {"MUSTER_HANDOVER_FILE": str(folder.hand_over.absolute())} if told else {}
        return Launch(
            argv=self._argv(job, folder, prompt),
            env=self._base_env() | job_env(job, folder) | known | dict(extra_env),
            cwd=cwd,
            stdin=folder.prompt.absolute() if self.config.prompt == "stdin" else None,
            limits=self.config.limits,
            begins=begins_anew(folder) if told else "",
        )

    def stream(self, job: Job, launch: Launch) -> SilentStream:  # noqa: ARG002
        return SilentStream(self)

    def outcome(self, exit: Exit, folder: AttemptFolder) -> Outcome:
        """What this end means.  Never raises: a broken result file is a failure with a message."""
        if stopped := stopped_by_us(exit):
            return stopped
        if exit.code >= 0 and (failed := self._said_otherwise(exit, folder)):
            return failed
        if exit.code == 0:
            return read_result(folder.result)
        kind, cause = self._cause(exit, folder)
        said = last_words(folder)
        return Failed(kind=kind, message=shorten(f"{cause}: {said}" if said else cause))

    def _cause(self, exit: Exit, folder: AttemptFolder) -> tuple[ErrorKind, str]:
        if starved := out_of_memory(exit, folder, self.config.limits):
            return ErrorKind.OUT_OF_MEMORY, starved
        if exit.code < 0:
            return signal_cause(-exit.code)
        cause = f"exit code {exit.code}"
        if exit.code in self._meanings:
            return self._meanings[exit.code], cause
        if exit.code == 128 + signal.SIGKILL and oom_kills() is None:
            return ErrorKind.OUT_OF_MEMORY, f"{cause}, most likely killed for want of memory"
        return ErrorKind.CRASH, cause

    def _said_otherwise(self, exit: Exit, folder: AttemptFolder) -> Failed | None:
        """What its output tells beyond its exit code."""
        of = self.config
        success, failure, wait = of.success_pattern, of.failure_pattern, of.wait_pattern
        if not (success or failure or wait):
            return None
        said = f"{tail(folder.stdout)}\n{tail(folder.stderr)}"
        wrong, unproven = _found(failure, said), bool(success) and not _found(success, said)
        if exit.code == 0 and not wrong and not unproven:
            return None
        if waits := _found(wait, said):
            return _waits(waits)
        if wrong and exit.code not in self._meanings:
            return refusal(_line_of(wrong))
        if exit.code == 0:
            return Failed(kind=ErrorKind.CRASH, message="exit code 0, but success_pattern matches nothing")
        return None

    @property
    def _meanings(self) -> Mapping[int, ErrorKind]:
        return {**EXIT_CODES, **self.config.exit_codes}

    def _argv(self, job: Job, folder: AttemptFolder, prompt: str) -> tuple[str, ...]:
        values = {
            "prompt": prompt,
            "prompt_file": str(folder.prompt.absolute()),
            "task": job.ref,
            "title": job.title,
            "place": job.place,
            "model": job.model or self.config.model or "",
            "system_prompt": job.system_prompt,
        }
        for name, wanted in (("model", job.model), ("system_prompt", job.system_prompt)):
            if wanted and not any(f"{{{name}}}" in element for element in self.config.command):
                raise BadInput(
                    f"agent {self.name} cannot be given a {name.replace('_', ' ')}",
                    f"write {{{name}}} in command of [agents.{self.name}], or name another agent",
                )
        argv = [_fill(element, values) for element in self.config.command]
        if self.config.prompt == "script":
            if not job.prompt.strip():
                raise BadInput(f"{job.ref} has no text to run as a script", "give the task a text")
            # In a file: a script may be longer than an argument can be.
            write_private(folder.script, script_of(job.prompt).encode())
            argv.append(str(folder.script.absolute()))
        elif self.config.prompt == "argument" and not any(
            "{prompt}" in element for element in self.config.command
        ):
            argv.append(_fill("{prompt}", values))
        return tuple(argv)

    def _base_env(self) -> dict[str, str]:
        return base_env(self.config.env_names, self.config.env, self.home)


class SilentStream:
    """The output of a plain command: a log, nothing more."""

    costs = False
    usage = None
    session_usage = None
    ended = False
    waiting = None
    answered = False

    def __init__(self, agent: CommandAgent) -> None:
        self._agent = agent

    def feed(self, data: bytes) -> list[AgentEvent]:  # noqa: ARG002
        return []

    def close(self) -> None:
        """Nobody tells what it has cost."""

    def outcome(self, exit: Exit, folder: AttemptFolder) -> Outcome:
        return self._agent.outcome(exit, folder)


def _found(pattern: str | None, said: str) -> re.Match[str] | None:
    return re.search(pattern, said, re.MULTILINE) if pattern is not None else None


def _line_of(found: re.Match[str]) -> str:
    """The whole line, or lines, that it stands in."""
    end = found.string.find("\n", found.end())
    return found.string[found.string.rfind("\n", 0, found.start()) + 1 : None if end < 0 else end]


def _waits(found: re.Match[str]) -> Failed:
    """Its first group may say for how many seconds."""
    seconds = found[1] if found.re.groups else None
    known = seconds is not None and re.fullmatch(r"\d{1,6}(\.\d+)?", seconds)
    return Failed(
        kind=ErrorKind.QUOTA if known else ErrorKind.RATE_LIMIT,
        message=shorten(printable(_line_of(found))),
        reset_at_s=time.time() + float(seconds) if seconds and known else None,
    )


def _fill(template: str, values: Mapping[str, str]) -> str:
    """Replaces the placeholders in one pass: what they stand for is never looked at again.

    Text of the task cannot become an option: at the head of an argument, a dash gets a space before it.
    """
    text = _PLACEHOLDER.sub(lambda match: values[match[1]], template)
    return f" {text}" if text.startswith("-") and not template.startswith("-") else text
