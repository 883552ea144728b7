"""`muster watch` on a terminal: tasks with reasons, agents, and the output of the chosen task, live."""

from __future__ import annotations

import time

from muster.cli.context import Context, actor
from muster.cli.live.draw import draw
from muster.cli.live.feed import NO_CREW, Listing, LiveFeed
from muster.cli.live.state import News, State
from muster.cli.live.terminal import Terminal
from muster.cli.output import Screen

TICK_S = 0.25
"""A frame is drawn after a key, and otherwise at most this often."""


def as_it_is(context: Context, plan: str | None) -> News:
    """What there is to see before a crew is up."""
    status = context.api.get("/api/v1/status")
    tasks = Listing(context.api, plan).news(status["status"]["lastEventId"])
    return News(tasks=tasks, status=status, link=NO_CREW)


def watch(context: Context, first: News, *, plan: str | None, colour: str) -> int:
    """Until `q`.  Raises KeyboardInterrupt on Ctrl-C, after the terminal is as it was."""
    state = State(plan=plan)
    state.show(first)
    screen = Screen(colour)
    with LiveFeed(context, actor(), plan) as feed, Terminal(wake=feed.wake_fd) as terminal:
        while not state.done:
            for news in feed.take():
                state.show(news)
            feed.choose(state.log_wanted())
            terminal.draw(draw(state, terminal.size(), screen, now_ms=time.time_ns() // 1_000_000))
            for key in terminal.keys(TICK_S):
                if (asked := state.key(key)) is not None:
                    feed.ask(asked)
    return 0
