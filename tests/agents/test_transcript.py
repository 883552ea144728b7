"""What people read of an agent's output: cut anywhere, with gaps, long lines and noise in between."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.agents.transcript import Reader, Span, Streams, Transcript
from muster.app.settings import KINDS
from muster.model.limits import Limits
from muster.ports.agent import Did, Entry, Step

STREAMS = Path(__file__).parent / "streams"
NAMES = sorted(path.stem for path in STREAMS.glob("*.jsonl"))


def read_transcript(entries, data: bytes) -> list[Entry]:
    transcript = Transcript(Reader((entries,)))
    return [*transcript.feed(data), *transcript.end()]


def entries_of(name: str):
    return KINDS[name.partition(".")[0]].entries


def recorded(name: str) -> bytes:
    return (STREAMS / f"{name}.jsonl").read_bytes()


def told(name: str) -> list[tuple[str, str, str]]:
    return [
        (entry.did.value, entry.tool, entry.text)
        for entry in read_transcript(entries_of(name), recorded(name))
    ]


def test_messages_tools_with_target_results_and_cost() -> None:
    assert told("claude-code.tools") == [
        ("tool", "Bash", "echo hello > made.txt"),
        ("result", "", "(Bash completed with no output)"),
        ("tool", "Bash", "cat made.txt"),
        ("result", "", "hello"),
        ("message", "", "I made it."),
        ("cost", "", "3 turns, 3,600 tokens in, 150 out, $0.0114"),
    ]
    assert told("codex.tools")[1:] == [
        ("tool", "shell", "echo hello > made.txt"),
        ("result", "", "(nothing)"),
        ("tool", "shell", "cat made.txt"),
        ("result", "", "hello"),
        ("message", "", "I made it."),
        ("cost", "", "3,000 tokens in, 150 out"),
    ]


def test_tries_of_the_provider_and_what_was_refused() -> None:
    assert [entry[0] for entry in told("claude-code.e429")] == ["retry", "retry", "error", "cost"]
    assert "rate_limit, try 2 of 3" in told("claude-code.e429")[0][2]
    assert "Permission to use Bash has been denied" in told("claude-code.refused")[1][2]


@pytest.mark.parametrize("name", NAMES)
def test_every_recording_says_something_and_shows_no_json(name: str) -> None:
    entries = told(name)
    assert entries
    assert not any(text.startswith('{"type"') for _, _, text in entries)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(NAMES), st.lists(st.integers(0, 20_000), max_size=8))
def test_it_may_be_cut_anywhere(name: str, cuts: list[int]) -> None:
    data, transcript = recorded(name), Transcript(Reader((entries_of(name),)))
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    found = [entry for a, b in pairwise(places) for entry in transcript.feed(data[a:b])]
    assert [*found, *transcript.end()] == list(read_transcript(entries_of(name), data))


PARTS = [("He", True), ("llo", True), ("then", False), ("b", True), ("ye", True), ("c", False), ("d", True)]
SAID = [{"type": "m", "said": text, "part": part} for text, part in PARTS]
ERRORS = [{"type": "e", "error": text} for text in ("bad", "bad", "worse", "bad")]


def of_parts(line):
    if "error" in line:
        yield Entry(did=Did.ERROR, text=line["error"])
    elif "said" in line:
        yield Entry(did=Did.TOOL, text="", tool=line["said"].upper())
        yield Entry(did=Did.MESSAGE, text=line["said"], goes_on=line["part"])


def in_lines(objects) -> bytes:
    return b"".join(json.dumps(one).encode() + b"\n" for one in objects)


MIXED = in_lines([*SAID, *ERRORS, {"type": "silent"}, ERRORS[-1], *SAID[:2], {"type": "silent"}, SAID[1]])


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([*NAMES, "of parts", "plain"]), st.lists(st.integers(0, 20_000), max_size=8))
def test_who_goes_on_elsewhere_tells_the_same(name: str, cuts: list[int]) -> None:
    """Each part is read by somebody else, who has what the one before says that it hangs on."""
    data = MIXED if name in {"of parts", "plain"} else recorded(name)
    kinds = (of_parts,) if name == "of parts" else () if name == "plain" else (entries_of(name),)
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    found: list[Entry] = []
    spans: dict[str, Span] = {}
    for a, b in pairwise(places):
        streams = Streams(Reader(kinds))
        for stream, (begin, end) in spans.items():
            assert begin is not None
            streams.resume(stream, (begin, end), data[begin:end])
        found += streams.feed("stdout", a, data[a:b])
        spans = streams.spans
    found += [entry for _, entry in streams.end()]
    whole = Transcript(Reader(kinds))
    assert found == [*whole.feed(data), *whole.end()]


def test_a_gap_ends_what_was_begun() -> None:
    plain, parts = Streams(Reader(())), Streams(Reader((of_parts,)))
    assert [
        entry.text for entry in [*plain.feed("stdout", 0, b"one\ntw"), *plain.feed("stdout", 9, b"o\n")]
    ] == [
        "one",
        "tw",
        "o",
    ]
    data = in_lines([{"type": "m", "said": "He", "part": True}])
    found = [*parts.feed("stdout", 0, data + b'{"type'), *parts.feed("stdout", 900, b'"}\n' + data)]
    assert [entry.text for entry in found if entry.did is Did.MESSAGE] == ["He"]
    assert parts.spans == {"stdout": (903, 903 + len(data))}


def test_a_gap_loses_only_what_is_missing() -> None:
    data, transcript = recorded("claude-code.tools"), Transcript(Reader((entries_of("claude-code.tools"),)))
    lines = data.splitlines(keepends=True)
    found = [*transcript.feed(lines[0] + lines[1][:200])]
    found += transcript.gap()
    found += [*transcript.feed(lines[3][50:] + b"".join(lines[4:])), *transcript.end()]
    assert [entry.text for entry in found][:2] == ["hello", "I made it."]


def test_a_long_line_and_noise_between() -> None:
    said = {"type": "user", "message": {"content": [{"type": "tool_result", "content": "x" * 400_000}]}}
    data = b"warning: old node\n" + json.dumps(said).encode() + b'\n{"type":"new_kind","a":1}\n{"rows": 3}\n'
    found = list(read_transcript(entries_of("claude-code.x"), data + b'{"type":"assi'))
    assert [(entry.did, len(entry.text)) for entry in found] == [
        (Did.OUTPUT, 17),
        (Did.RESULT, 400_000),
        (Did.OUTPUT, 11),
    ], "what is known to be cut off and what has an unknown type is left out; other JSON is somebody's output"


def test_parts_of_a_message_are_one() -> None:
    def entries(line):
        yield Entry(did=Did.MESSAGE, text=line["said"], goes_on=line["part"])

    lines = [("He", True), ("llo", True), ("then", False), ("b", True)]
    data = b"".join(
        json.dumps({"type": "m", "said": text, "part": part}).encode() + b"\n" for text, part in lines
    )
    assert [entry.text for entry in read_transcript(entries, data)] == ["Hello", "then", "b"]


CLAUDE_TODO = [
    (
        "TodoWrite",
        {"todos": [{"content": "a", "status": "completed"}, {"content": "b", "status": "pending"}]},
        50,
    ),
    ("TodoWrite", {"todos": [{"content": "a", "status": "completed"}] * 2}, 100),
]
CLAUDE_TASKS = [
    ("TaskCreate", {"subject": "a"}, 0),
    ("TaskCreate", {"subject": "b"}, 0),
    ("TaskUpdate", {"taskId": "1", "status": "completed"}, 50),
    ("Bash", {"command": "ls"}, None),
]


@pytest.mark.parametrize("uses", [CLAUDE_TODO, CLAUDE_TASKS])
def test_how_far_it_is_by_its_own_list(uses) -> None:
    from muster.agents.claude_code import ClaudeStream

    stream = ClaudeStream(None, Limits())
    for number, (tool, inputs, percent) in enumerate(uses):
        part = {"type": "tool_use", "id": str(number), "name": tool, "input": inputs}
        line = {"type": "assistant", "message": {"id": str(number), "content": [part], "usage": {}}}
        [step] = [
            event for event in stream.feed(json.dumps(line).encode() + b"\n") if isinstance(event, Step)
        ]
        assert step.percent == percent


def test_how_far_codex_is_by_its_own_list() -> None:
    from muster.agents.codex import CodexStream

    items = [{"text": "look", "completed": True}, {"text": "mend it", "completed": False}]
    line = {"type": "item.updated", "item": {"id": "i", "type": "todo_list", "items": items}}
    [step] = CodexStream(None, Limits()).feed(json.dumps(line).encode() + b"\n")
    assert step == Step("1 of 2 done; next: mend it", 50)
