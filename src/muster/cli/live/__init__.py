"""`muster watch` on a terminal: tasks with reasons, agents, and the output of the chosen task, live."""

from __future__ import annotations

from urllib.parse import urlsplit

from muster.cli.attention import Attention, matters_of
from muster.cli.context import Context
from muster.cli.live.draw import draw
from muster.cli.live.feed import Listing, LiveFeed, needs_of, no_crew, rights_of
from muster.cli.live.news import News
from muster.cli.live.state import State
from muster.cli.live.terminal import Terminal
from muster.cli.output import Screen, now_ms
from muster.config.channels import NotifySettings
from muster.model.errors import BadConfig

STARTLED_S = 0.4
"""Who goes on typing after a question was left presses nothing with it."""
TICK_S = 0.25
"""A frame is drawn after a key, and otherwise at most this often."""


def as_it_is(context: Context, plan: str | None) -> News:
    """What there is to see before a crew is up."""
    status = context.api.get("/api/v1/status")
    tasks = Listing(context.api, plan).news(status["status"]["lastEventId"])
    return News(
        tasks=tasks,
        status=status,
        needs=needs_of(context.api, status, plan),
        rights=rights_of(context.api, context.headers),
        link=no_crew(context),
    )


def watch(context: Context, first: News, *, plan: str | None, colour: str) -> int:
    """Until `q`.  Raises KeyboardInterrupt on Ctrl-C, after the terminal is as it was."""
    state = State(plan=plan)
    state.show(first, now_ms())
    screen = Screen(colour)
    attention = _attention(context)
    with LiveFeed(context, plan) as feed, Terminal(wake=feed.wake_fd, after=attention.over) as terminal:
        while not state.done:
            for news in feed.take():
                state.show(news, now_ms())
            if state.needs is not None:
                terminal.say(attention.told(matters_of(state.needs)))
            feed.choose(state.log_wanted(), state.detail_wanted(), state.reviewing)
            terminal.draw(draw(state, terminal.size(), screen, now_ms=now_ms()))
            for key in terminal.keys(TICK_S):
                if (asked := state.key(key)) is not None:
                    feed.ask(asked)
                if state.startled:
                    state.startled = False
                    terminal.drop_keys(STARTLED_S)
                    break
    return 0


def _attention(context: Context) -> Attention:
    """Of this folder's settings; of a server's nothing is known."""
    if context.here is None:
        return Attention(urlsplit(context.reach["MUSTER_SERVER"]).hostname or "", NotifySettings())
    try:
        settings = context.settings().notify
    except BadConfig:  # of which other commands tell
        settings = NotifySettings()
    return Attention(context.here.root.name, settings)
