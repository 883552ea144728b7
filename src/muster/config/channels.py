"""`[channels.NAME]`: where people are told what waits for them."""

from __future__ import annotations

import re
from collections.abc import Callable

from muster.config.tables import Section, Table, fail, read_section, read_table, setting
from muster.config.values import (
    read_duration,
    read_flag,
    read_one_of,
    read_text,
    read_texts,
)
from muster.model.errors import BadInput
from muster.model.notify import Matter, Quiet
from muster.model.secrets import check_name
from muster.model.wording import hint

NTFY, SLACK, WEBHOOK, EMAIL, DESKTOP = "ntfy", "slack", "webhook", "email", "desktop"
KINDS = (NTFY, SLACK, WEBHOOK, EMAIL, DESKTOP)
STARTTLS, TLS, PLAIN = "starttls", "tls", "none"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HOURS = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)")
_URL = re.compile(r"https?://[^\s/?#@]+([/?#]\S*)?")
_TOPIC = re.compile(r"https?://[^/]+(/[^/?#]+)*/[A-Za-z0-9_-]{1,64}")
_MAIL = re.compile(r"[^\s@<>,]+@[^\s@<>,]+")
_SERVER = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s:/\[\]]+)(?::(\d{1,5}))?")


def read_matters(key: str, value: object) -> tuple[Matter, ...]:
    known = [matter.value for matter in Matter]
    found = read_texts(key, value)
    for name in found:
        if name not in known:
            fail(
                key, f"{name!r} is nothing that is told", hint(name, known) or f"there are {', '.join(known)}"
            )
    return tuple(Matter(name) for name in found)


def read_quiet(key: str, value: object) -> Quiet:
    found = _HOURS.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        fail(key, f"{value!r} is no span of hours", 'write it like "22:00-07:00"')
    begin_h, begin_m, end_h, end_m = map(int, found.groups())
    return Quiet(begin_h * 60 + begin_m, end_h * 60 + end_m)


def read_time_zone(key: str, value: object) -> str:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # every command reads settings, and few have this

    text = read_text(key, value)
    try:
        ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        fail(key, f"{text!r} is no time zone that this machine knows", 'write it like "Europe/Berlin"')
    return text


def read_url(key: str, value: object) -> str:
    """Not repeated in errors: it may hold a secret."""
    if not isinstance(value, str) or not _URL.fullmatch(value):
        fail(key, "is no address", "write it like https://HOST/PATH, without a name or password in it")
    return value


def _read_secret(key: str, value: object) -> str:
    name = read_text(key, value)
    try:
        check_name(name)
    except BadInput:
        # Not repeated: somebody may have written the secret itself.
        fail(key, "is no name of a secret", "write the name that it has in `muster secrets set`")
    return name


def _read_mails(key: str, value: object) -> tuple[str, ...]:
    found = read_texts(key, value)
    for one in found:
        _mail(key, one)
    return found


def _read_mail(key: str, value: object) -> str:
    return _mail(key, read_text(key, value))


def _mail(key: str, text: str) -> str:
    if not _MAIL.fullmatch(text):
        fail(key, f"{text!r} is no address of a mailbox", 'write it like "crew@example.org"')
    return text


def _read_server(key: str, value: object) -> str:
    text = read_text(key, value)
    if not _SERVER.fullmatch(text):
        fail(key, f"{text!r} is not HOST or HOST:PORT", 'write it like "smtp.example.org:587"')
    return text


class NotifySettings(Section, frozen=True, kw_only=True):
    """How people are told what waits for them, beside `[channels.NAME]`.  `[notify]`"""

    link: str = setting(
        "",
        "link",
        read_url,
        "the address of the pages as people reach it, for links in messages; without it none are sent",
    )
    title: bool = setting(
        True, "title", read_flag, "whether `muster up`, `run` and `watch` say in the title how much waits"
    )
    bell: bool = setting(True, "bell", read_flag, "whether they ring its bell for something new")


class ChannelConfig(Section, frozen=True):
    """A place where people are told.  `[channels.NAME]`"""

    name: str
    kind: str = setting("", "kind", read_one_of(KINDS, "no kind of channel"), f"one of {', '.join(KINDS)}")
    tell: tuple[Matter, ...] = setting(
        tuple(Matter), "tell", read_matters, f"what is told: {', '.join(Matter)}; without it all of these"
    )
    digest_s: float = setting(
        0.0, "digest", read_duration, "how long what happens is collected into one message"
    )
    quiet: Quiet | None = setting(
        None,
        "quiet",
        read_quiet,
        "hours in which nothing is sent, like `22:00-07:00`; what still matters then comes as one message",
        lambda quiet: None if quiet is None else str(quiet),
    )
    time_zone: str = setting(
        "", "time_zone", read_time_zone, "of those hours, like `Europe/Berlin`; else the machine's"
    )
    secret: str = setting(
        "",
        "secret",
        _read_secret,
        "the name in `muster secrets` of what it needs: a token, a password, for slack its address",
    )
    secret_file: str = setting("", "secret_file", read_text, "in place of that: a file that holds it")
    url: str = setting("", "url", read_url, "of ntfy its topic's address, of a webhook where it listens")
    private: bool = setting(
        False, "private", read_flag, "`true`: also to this machine and private networks, and without TLS"
    )
    server: str = setting("", "server", _read_server, "of email: `HOST:PORT` of the mail server")
    tls: str = setting(
        STARTTLS,
        "tls",
        read_one_of((STARTTLS, TLS, PLAIN), "no way to be safe on the way there"),
        "of email: starttls, tls (from the first byte on), none",
    )
    user: str = setting(
        "", "user", read_text, "of email: the name to log in with; its password is the secret"
    )
    sender: str = setting("", "from", _read_mail, "of email: who writes")
    to: tuple[str, ...] = setting((), "to", _read_mails, "of email: who is written to")

    @property
    def shown(self) -> str:
        """Where it leads."""
        match self.kind:
            case "email":
                return ", ".join(self.to)
            case "slack":
                return self.secret or self.secret_file
            case "desktop":
                return "this machine"
            case _:
                return self.url

    @property
    def smtp(self) -> tuple[str, int]:
        """Host and port of the mail server."""
        found = _SERVER.fullmatch(self.server)
        assert found is not None
        usual = {STARTTLS: 587, TLS: 465, PLAIN: 25}
        return found[1].strip("[]"), int(found[2] or usual[self.tls])


_COMMON = {"kind", "tell", "digest", "quiet", "time_zone"}
_SECRET = {"secret", "secret_file"}
_NEEDS: dict[str, set[str]] = {
    NTFY: {"url"},
    SLACK: set(),
    WEBHOOK: {"url"},
    EMAIL: {"server", "from", "to"},
    DESKTOP: set(),
}
_TAKES: dict[str, set[str]] = {
    NTFY: {"private", *_SECRET},
    SLACK: {"private", *_SECRET},
    WEBHOOK: {"private", *_SECRET},
    EMAIL: {"tls", "user", *_SECRET},
    DESKTOP: set(),
}


def read_channels(table: Table) -> tuple[ChannelConfig, ...]:
    return tuple(table.read(name, _channel, ChannelConfig(name)) for name in table.names())


def _channel(key: str, value: object) -> ChannelConfig:
    name = key.removeprefix("channels.")
    if not _NAME.fullmatch(name):
        fail(key, "is not a name for a channel", "use letters, digits, '.', '_' and '-', at most 64")
    table = read_table(key, value)
    if not table.has("kind"):
        fail(f"{key}.kind", "is missing", f"write one of {', '.join(KINDS)}")
    parsed: ChannelConfig = read_section(table, ChannelConfig, ChannelConfig.settings, {"name": name})
    for field in sorted(set(table.names()) - _COMMON - _NEEDS[parsed.kind] - _TAKES[parsed.kind]):
        fail(f"{key}.{field}", f"is not for a channel of kind {parsed.kind!r}", "leave it out")
    for field in sorted(_NEEDS[parsed.kind] - set(table.names())):
        fail(f"{key}.{field}", "is missing", f"a channel of kind {parsed.kind!r} needs it")
    if parsed.secret and parsed.secret_file:
        fail(f"{key}.secret_file", "stands beside secret", "keep one", against=f"{key}.secret")
    _check_kind(parsed, lambda field, problem, fix: fail(f"{key}.{field}", problem, fix))
    return parsed


def _check_kind(parsed: ChannelConfig, wrong: Callable[[str, str, str], None]) -> None:
    has_secret = bool(parsed.secret or parsed.secret_file)
    if parsed.kind == SLACK and not has_secret:
        wrong("secret", "is missing: the address of a Slack webhook is its secret", "muster secrets set NAME")
    if parsed.kind == NTFY and not _TOPIC.fullmatch(parsed.url):
        wrong("url", "does not end with a topic", 'write it like "https://ntfy.sh/TOPIC"')
    if parsed.kind == EMAIL:
        if bool(parsed.user) is not has_secret:
            wrong("user", "and its secret belong together", "write both, or none of them")
        if parsed.tls == PLAIN and not _is_here(parsed.smtp[0]):
            wrong("tls", "`none` is for a mail server on this machine", 'write tls = "starttls" or "tls"')


def _is_here(host: str) -> bool:
    from ipaddress import ip_address

    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
