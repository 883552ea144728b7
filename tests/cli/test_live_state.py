"""The live watch without a terminal: its state, its drawing, and what its feed asks for."""

from __future__ import annotations

import random

import pyte
import pytest
from live_rows import news, task

from muster.cli.live import feed
from muster.cli.live.draw import _hints, draw
from muster.cli.live.output_window import LOG_LINES_MAX
from muster.cli.live.state import LIST_KEYS, State
from muster.cli.output import Screen, width
from muster.client.api import Api
from muster.client.http import Connection
from muster.engine.batch import drive
from muster.model import commands as c
from muster.model.access import RIGHTS, Role
from muster.model.needs import gathered
from muster.model.states import ErrorKind

VIEWER = RIGHTS[Role.VIEWER]


def shown(state, height=5):
    return [row["id"] for row in state.window(height)]


def keyed(state, keys):
    return [asked for key in keys if (asked := state.key(key)) is not None]


# State


def test_nothing_on_the_screen_moves_and_the_choice_stays_whatever_arrives():
    chance = random.Random(7)
    state = State()
    numbers = set(range(100, 140))
    state.show(news([task(number) for number in numbers]))
    keyed(state, "j" * 12)
    before, chosen = shown(state), state.chosen
    for _ in range(200):
        numbers |= {chance.randrange(1, 400) for _ in range(3)}
        ended = {number for number in numbers if chance.random() < 0.3}
        arrived = [task(n, "COMPLETED" if n in ended else "RUNNING") for n in sorted(numbers)]
        chance.shuffle(arrived)
        state.show(news(arrived))
        after = shown(state)
        assert state.chosen == chosen
        assert after[: len(before)] == before, "a row has moved"
        before = after


def test_keys_move_the_choice_and_the_window_follows():
    state = State()
    state.show(news([task(number) for number in range(1, 31)]))
    assert shown(state) == [1, 2, 3, 4, 5]
    keyed(state, "jjjjj")
    assert (state.chosen, shown(state)) == (6, [2, 3, 4, 5, 6])
    keyed(state, ["G"])
    assert (state.chosen, shown(state)) == (30, [26, 27, 28, 29, 30])
    keyed(state, ["pgup", "k"])
    assert (state.chosen, shown(state)) == (24, [24, 25, 26, 27, 28])
    keyed(state, "ggk")
    assert (state.chosen, shown(state)) == (1, [1, 2, 3, 4, 5])


def asked(state, keys):
    """What is to be done, as (action, key of the task, body)."""
    return [(one.action, one.row["key"], one.body) for one in keyed(state, keys)]


def test_what_ends_something_is_asked_back_and_a_pause_is_not():
    state = State()
    state.show(news([task(1, "RUNNING"), task(2, "PAUSED", actions=["resume", "cancel"])]))
    assert asked(state, "c") == []
    assert (state.dialog.action, state.dialog.row["key"]) == ("cancel", "t1")
    assert asked(state, "n") == []
    assert state.message == "nothing was changed"
    assert asked(state, "cy") == [("cancel", "t1", {})]
    assert asked(state, "ry") == [("retry", "t1", {})]
    assert asked(state, "p") == [("pause", "t1", {})]
    assert asked(state, "jp") == [("resume", "t2", {})]


def test_a_confirmation_is_for_the_task_that_was_chosen_then():
    state = State()
    state.show(news([task(1, "RUNNING"), task(2, "RUNNING")]))
    keyed(state, "c")
    state.show(news([task(2, "RUNNING")]))
    assert asked(state, "y") == [("cancel", "t1", {})]


def test_fields_are_written_before_a_yes():
    state = State()
    state.show(news([task(1, "FAILED", actions=["retry", "skip", "transfer"])]))
    keys = ["r", "tab", *"half-evn", "left", "e", "end", "backspace", "n", "tab", " ", "y"]
    assert asked(state, keys) == [("retry", "t1", {"note": "half-even", "fresh": True})]
    assert asked(state, ["s", "tab", *"no use", "enter"]) == [], "what cannot be taken back asks once more"
    assert asked(state, "y") == [("skip", "t1", {"reason": "no use"})]
    assert asked(state, ["t", "enter"]) == []
    assert "write something" in state.dialog.message
    assert asked(state, [*"codey", "ctrl-u", *"a codex", "ctrl-w", *"codex", "enter"]) == [
        ("transfer", "t1", {"agent": "a codex"})
    ]
    assert asked(state, ["b", *"again", "enter"]) == [
        ("retry", "t1", {"note": "Your work was looked at (attempt 0).\n\nagain"})
    ]
    assert asked(state, ["r", "tab", *"a note", "esc"]) == []
    assert (state.dialog, state.message) == (None, "nothing was changed")


def asking(**more):
    return task(1, "PAUSED", actions=["answer", "cancel"], needsPerson=True, **more)


def test_an_answer_is_written_in_place_and_a_wish_is_allowed_or_not():
    state = State()
    state.show(news([asking(question="Which schema?")]))
    assert asked(state, ["w", *"new y", "enter"]) == [("answer", "t1", {"text": "new y"})]
    state.show(news([asking(question="may it do this?", wish="git push")]))
    assert asked(state, "wy") == [("answer", "t1", {"allow": True})]
    assert asked(state, ["w", "tab", " ", "n"]) == [("answer", "t1", {"allow": False, "always": True})]
    assert asked(state, ["w", "enter"]) == []
    assert state.message == "nothing was changed"


def test_what_is_pasted_is_written_and_presses_nothing():
    state = State()
    state.show(news([asking(question="Which schema?")]))
    assert asked(state, ["paste:cy", "paste:y"]) == []
    assert state.dialog is None
    assert asked(state, ["w", "paste:two\nlines", "enter"]) == [("answer", "t1", {"text": "two lines"})]


def test_a_viewer_has_no_key_that_changes_anything():
    state = State()
    state.show(news([task(1, "RUNNING"), asking(question="?", id=2, key="t2")])._replace(rights=VIEWER))
    hints = draw(state, (200, 10), Screen("never"), now_ms=0)[-1]
    assert "cancel" not in hints and "answer" not in hints and "? keys" in hints
    for keys in ("wy", "cy", "p", "jcy", "A", "s", "d", "t", "b", "y", "ry"):
        assert asked(state, keys) == [], keys
        assert state.dialog is None
    keyed(state, "c")
    assert state.message == "cancel: this is not yours to do here; nothing was changed"


def test_what_is_not_possible_is_said_with_what_is():
    state = State()
    state.show(news([task(1, "RUNNING", actions=["pause", "cancel"])]))
    assert asked(state, "r") == []
    assert state.message == "retry is not possible now; what is: c cancel, p pause"


def test_every_key_of_the_list_can_be_chosen_there():
    state = State()
    state.show(news([task(1, "RUNNING"), task(2)]))
    rows = [line[2:8].strip() for line in draw(state_with_help(state), (80, 60), Screen("never"), now_ms=0)]
    assert {key.key for key in LIST_KEYS} <= set(rows)
    at = next(number for number, key in enumerate(LIST_KEYS) if key.key == "p")
    assert asked(state, ["j"] * at + ["enter"]) == [("pause", "t1", {})]
    assert asked(state, "?q") == []
    assert not state.done
    assert asked(state, "?p") == [("pause", "t1", {})], "a key does what it says there, too"


def state_with_help(state):
    keyed(state, "?")
    return state


def test_a_reason_that_is_too_long_for_its_row_is_told_below():
    state = State()
    why = "waits for a review: its work is for you to look at, and there is more of it than one line takes"
    state.show(news([task(1, "PAUSED", why=why), task(2, why="short")]))
    text = " ".join(" ".join(draw(state, (60, 20), Screen("never"), now_ms=0)).split())
    assert text.count(why) == 1
    keyed(state, "j")
    assert " ".join(draw(state, (60, 20), Screen("never"), now_ms=0)).count("short") == 1


def test_what_needs_a_person_comes_first_then_what_is_at_work():
    state = State()
    needs = [task(4, "FAILED", needsPerson=True), asking(id=2, key="t2")]
    state.show(news([task(1), needs[1], task(3, "RUNNING"), needs[0]]))
    assert shown(state) == [2, 4, 3, 1]
    keyed(state, "gt")
    assert shown(state) == [1, 2, 3, 4]
    keyed(state, "gd")
    assert shown(state) == [4]
    pools = {"anthropic": {"untilMs": None, "kind": "billing", "reason": "no credit"}, "x": {"untilMs": 5}}
    inbox = {"tasks": needs, "files": [], "webhooks": [], "complete": True}
    found = gathered(inbox, pools, [], None)
    state.show(news()._replace(needs=found))
    keyed(state, "gi")
    assert shown(state) == ["pool anthropic", 4, 2]
    assert asked(state, "r") == [("open", "anthropic", {})]
    assert "3 need you" in draw(state, (100, 20), Screen("never"), now_ms=0)[0]
    state.show(news()._replace(needs={**found, "complete": False}))
    assert "more waits for you than was looked at" in "".join(
        draw(state, (100, 20), Screen("never"), now_ms=0)
    )


def test_what_has_ended_is_hidden_until_asked_for_and_failures_are_not():
    state = State()
    state.show(news([task(1, "COMPLETED"), task(2), task(3, "FAILED")]))
    assert shown(state) == [2, 3]
    state.show(news([task(1, "COMPLETED"), task(2, "COMPLETED"), task(3, "FAILED")]))
    assert shown(state) == [2, 3]
    keyed(state, "a")
    assert shown(state) == [1, 2, 3]


def test_a_filter_is_typed_kept_and_dropped():
    state = State()
    state.show(news([task(number) for number in range(1, 31)]))
    keyed(state, [*"/T2x", "backspace", "9", "enter"])
    assert (shown(state), state.chosen, state.filter) == ([29], 29, "T29")
    assert keyed(state, "q") == []
    assert state.done
    keyed(state, ["esc"])
    assert (len(state.rows()), state.chosen) == (30, 29)


def test_what_fits_a_filter_no_more_stays_and_what_fits_now_comes_below():
    state = State()
    state.show(news([task(1), task(2, "RUNNING"), task(3, "RUNNING")]))
    keyed(state, [*"/running", "enter"])
    assert (shown(state), state.chosen) == ([2, 3], 2)
    state.show(news([task(1, "RUNNING"), task(2, "COMPLETED"), task(3, "RUNNING")]))
    assert (shown(state), state.chosen) == ([2, 3, 1], 2)
    keyed(state, [*"/running", "enter"])
    assert (shown(state), state.chosen) == ([1, 3], 3)


def test_a_filter_that_is_begun_anew_shows_all():
    state = State()
    state.show(news([task(1), task(2, "RUNNING")]))
    keyed(state, [*"/running", "enter"])
    assert shown(state) == [2]
    keyed(state, "/")
    assert (shown(state), state.chosen) == ([2, 1], 2)


def test_a_task_that_is_gone_is_followed_by_its_neighbour_and_the_window_stays():
    state = State()
    state.show(news([task(number) for number in range(1, 101)]))
    keyed(state, "j" * 49)
    assert (shown(state), state.chosen) == ([46, 47, 48, 49, 50], 50)
    state.show(news([task(number) for number in range(1, 101) if number not in (46, 50)]))
    assert (shown(state), state.chosen) == ([47, 48, 49, 51, 52], 51)
    state.show(news([task(number) for number in range(1, 46)]))
    assert (shown(state), state.chosen) == ([41, 42, 43, 44, 45], 45)


def test_nothing_is_done_to_a_task_that_is_not_shown():
    state = State()
    state.show(news([task(1, "RUNNING")]))
    keyed(state, [*"/nothing", "enter"])
    assert keyed(state, "pycyr") == []
    assert state.message == "no task is chosen"


def reading(count):
    state = State()
    state.show(news([task(1, "RUNNING", epoch=1), task(2, "RUNNING", epoch=1)]))
    assert state.log_wanted() == (1, 1)
    state.show(news(log=[str(n) for n in range(count)], log_of=(1, 1)))
    return state, lambda: state.output.window(80, 5)


def test_who_reads_in_an_attempt_is_not_taken_to_the_next_one():
    state, said = reading(50)
    said()
    keyed(state, "K")
    state.show(news([task(1, "RUNNING", epoch=2), task(2, "RUNNING", epoch=1)]))
    assert (state.log_wanted(), said()[-1]) == ((1, 1), "45")
    keyed(state, "f")
    assert (state.log_wanted(), state.output.lines) == ((1, 2), [])
    keyed(state, "Kj")
    assert state.log_wanted() == (2, 1)


def test_the_output_is_scrolled_no_further_than_its_beginning():
    state, said = reading(8)
    said()
    keyed(state, "K" * 20)
    assert said() == ["0", "1", "2", "3", "4"]
    keyed(state, "J")
    assert said() == ["3", "4", "5", "6", "7"]


def test_the_output_follows_until_it_is_scrolled_and_then_stands_still():
    state, said = reading(50)
    assert said()[-1] == "49"
    keyed(state, "K")
    state.show(news(log=["50", "51"], log_of=(1, 1)))
    assert said()[-1] == "45"
    keyed(state, "f")
    assert said()[-1] == "51"
    state.show(news(log=["of another"], log_of=(2, 1)))
    assert state.output.lines[-1] == "51"
    keyed(state, "KK")
    state.show(news(log=["x"] * LOG_LINES_MAX, log_of=(1, 1)))
    assert len(state.output.lines) == LOG_LINES_MAX
    keyed(state, "f")
    state.show(news([task(1, "RUNNING", epoch=2)]))
    assert (state.log_wanted(), state.output.lines, state.output.follow) == ((1, 2), [], True)


def test_long_lines_are_folded_anew_when_the_window_changes():
    state, _ = reading(0)
    state.show(news(log=["some words " * 10, "x" * 5000], log_of=(1, 1)))
    rows = state.output.window(40, 100)
    assert max(map(len, rows)) <= 40 and rows[-1].strip() == "..."
    assert "".join(rows[:3]).count("words") == 10
    assert state.output.window(200, 100)[0].rstrip() == ("some words " * 10).strip()


def many(owner, count):
    specs = tuple(c.Spec(title=f"{n}", key=f"t{n}", max_retries=0) for n in range(count))
    owner.do(c.Enqueue(plan="many", source=None, tasks=specs, actor="user:ann"))
    owner.do(
        c.Register(
            worker_id="worker-abcdefgh",
            hostname="h",
            pid=1,
            pid_start=1,
            boot_id="boot",
            slots=9,
            agents=("shell",),
            general=("shell",),
        )
    )


def end(owner, key, job):
    owner.begin(job)
    if key == "t0":
        owner.do(c.Fail(task_id=job.task_id, epoch=1, kind=ErrorKind.CRASH, message="exit code 1"))
    else:
        owner.do(c.Complete(task_id=job.task_id, epoch=1, exit_code=0))


@pytest.mark.parametrize("between_s", [60, 0], ids=["asked for as a whole", "one by one"])
def test_what_was_seen_is_still_there_when_it_has_ended_among_many(empty, monkeypatch, between_s):
    monkeypatch.setattr(feed, "TASKS_MAX", 3)
    empty.do(
        c.Enqueue(
            plan="old",
            source=None,
            tasks=tuple(c.Spec(title="x", key=f"x{n}", done=True) for n in range(5)),
            actor="user:ann",
        )
    )
    many(empty, 3)
    connection = Connection(empty.socket)
    now_s = 0.0  # of a machine that has just started
    tasks = feed.Listing(Api(connection), None, lambda: now_s)

    def look():
        nonlocal now_s
        now_s += between_s
        found = tasks.news(drive(empty.store.reads.last_event_id()))
        return {row["key"]: row["status"] for row in found if row["plan"] == "many"}

    assert look() == {"t0": "PENDING", "t1": "PENDING", "t2": "PENDING"}
    assert tasks.cut
    for key, job in empty.claim("r", slots=2).items():
        end(empty, key, job)
    assert look() == {"t0": "FAILED", "t1": "COMPLETED", "t2": "PENDING"}
    between_s = 60
    assert look() == {"t0": "FAILED", "t1": "COMPLETED", "t2": "PENDING"}
    assert not tasks.cut
    connection.close()


def test_a_list_begins_anew_where_an_older_store_was_put_back(empty):
    many(empty, 3)
    connection = Connection(empty.socket)
    tasks = feed.Listing(Api(connection), None, lambda: 0.0)
    newest = drive(empty.store.reads.last_event_id())
    tasks.news(newest + 5)
    assert [row["key"] for row in tasks.news(newest) if row["plan"] == "many"] == ["t0", "t1", "t2"]
    connection.close()


# Drawing


@pytest.mark.parametrize("size", [(20, 4), (40, 10), (100, 24), (200, 60)])
@pytest.mark.parametrize(
    "keys", [[], ["?"], [*"/x"], ["c"], ["enter"], ["b", *"x" * 99], ["g", "p"], ["g", "i"]]
)
def test_a_frame_has_the_size_of_the_terminal(size, keys):
    state = State()
    state.show(
        news([task(n, "RUNNING", epoch=1, title="漢字" * 40, key="é👩‍💻❤️" * 20) for n in range(1, 90)])
    )
    state.log_wanted()
    state.show(news(log=["\x1b[2J\x07" + "漢" * 500], log_of=(1, 1)))
    keyed(state, keys)
    lines = draw(state, size, Screen("never"), now_ms=0)
    assert len(lines) == size[1]
    assert max(map(width, lines)) <= size[0]
    assert not any("\x1b" in line or "\x07" in line for line in lines)


ODD = (
    "漢字 and ﾊﾝ",
    "👩‍💻 e\u0301 ❤️ 👍🏽",
    "한글 \u1112\u1161\u11ab",
    "ไทย กำ",
    "a\u200bb\ufeff\u202ec",
    "\x1b]0;x\x07\t\n",
)


@pytest.mark.parametrize("columns", [40, 80, 132])
def test_every_column_begins_where_it_does_in_the_other_rows(columns):
    state = State()
    state.show(news([task(n, "RUNNING", key=odd, epoch=1, agent=odd) for n, odd in enumerate(ODD, 1)]))
    lines = draw(state, (columns, 24), Screen("never"), now_ms=0)
    begins = set()
    for line in lines[2 : 2 + len(ODD)]:
        screen = pyte.Screen(columns + 20, 2)
        pyte.Stream(screen).feed(line.partition("reason")[0])
        begins.add(screen.cursor.x)
        assert screen.cursor.y == 0
    assert len(begins) == 1, "\n".join(lines)


def test_a_review_is_offered_of_what_has_ended():
    """Of an attempt that is at work nothing is kept yet, and of a task that has not run there is none."""
    state = State()
    state.show(news([task(1, "RUNNING", epoch=1), task(2), task(3, "FAILED", epoch=2)]))
    state.open = True
    offered = {}
    for state.chosen in (1, 2, 3):
        offered[state.chosen] = "v review" in _hints(state)
    assert offered == {1: False, 2: False, 3: True}
    state.chosen, state.tasks[1]["epoch"], state.attempt = 1, 2, 1
    assert "v review" in _hints(state), "the attempt before it has ended"
