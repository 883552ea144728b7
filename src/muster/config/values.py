"""The values of `muster.toml`: what each stands for, or a BadConfig with the key and the fix."""

from __future__ import annotations

import re
from collections.abc import Callable

from muster.config.tables import fail, read_table
from muster.model.durations import DURATION_HINT, parse_duration
from muster.model.errors import BadConfig
from muster.model.place import PLACEHOLDERS, unknown_placeholders
from muster.model.secrets import VAULT_KEY
from muster.model.states import ErrorKind
from muster.model.wording import hint

SIZE_HINT = 'write it like "500KB", "64MB", "4GB" or "1.5GB"; a bare number is bytes'
_SIZE_MAX = 1 << 50
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(?:([KMGT])i?)?B?", re.IGNORECASE)
_POWER = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_LEAST_BYTES = 1 << 20
_LEAST_FILES = 16
_AUTHOR = re.compile(r"[^<>\n]+ <[^<>\s]+>")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def read_text(key: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        wrong = "is empty" if value == "" else f"{value!r} is not a text"
        fail(key, wrong, f'write {key.rpartition(".")[2]} = "..."')
    return value


def read_prompt(key: str, value: object) -> str:
    """What a prompt says of a task's place in its plan; it may be empty."""
    text = value if value == "" else read_text(key, value)
    assert isinstance(text, str)
    for name in unknown_placeholders(text):
        known = ", ".join(f"{{{each}}}" for each in PLACEHOLDERS)
        fail(key, f"{{{name}}} stands for nothing", hint(name, PLACEHOLDERS) or f"there are {known}")
    return text


STORES = ("postgresql://", "postgres://")
LIKE = 'write it like "postgresql://USER@HOST/DATABASE"'
_PASSWORD_OPTION = re.compile(r"([?&](?:password|sslpassword)=)[^&]*", re.IGNORECASE)
_STARS = re.compile(r"(?:ssl)?password=\*{3}&?", re.IGNORECASE)
_LISTEN = re.compile(r"(?:\[[0-9a-fA-F:.]+\]|[^\s:/\[\]]+):\d{1,5}")


def read_author(key: str, value: object) -> str:
    text = read_text(key, value)
    if not _AUTHOR.fullmatch(text):
        fail(key, f"{text!r} is not a name and an address", 'write it like "Crew <crew@example.com>"')
    return text


def read_listen(key: str, value: object) -> str:
    text = read_text(key, value)
    if text and not _LISTEN.fullmatch(text):
        fail(key, f"{text!r} is not HOST:PORT", 'write it like "127.0.0.1:7420" or "[::1]:7420"')
    return text


_ADDRESS = re.compile(r"(?:valkeys?|rediss?|unix)://[^\s]+", re.IGNORECASE)
_NAMESPACE = re.compile(r"[A-Za-z0-9_-]{1,40}")


def read_runtime_url(key: str, value: object) -> str:
    """Not more than what it looks like: whoever opens it says what is wrong with it."""
    if not isinstance(value, str) or not _ADDRESS.fullmatch(value):
        # It may hold a password: never repeat it.
        fail(key, "is no address of a Valkey", 'write it like "valkey://127.0.0.1:6379/0"')
    return value


def read_namespace(key: str, value: object) -> str:
    text = read_text(key, value)
    if not _NAMESPACE.fullmatch(text):
        fail(key, f"{text!r} does not fit into a key", "use at most 40 letters, digits, '-' and '_'")
    return text


def read_store(key: str, value: object) -> str:
    """Nothing of it is repeated: it may hold a password."""
    if value == "":
        fail(key, "is empty", LIKE)
    if not isinstance(value, str) or not value.startswith(STORES):
        fail(key, "is no address of a store", LIKE)
    from muster.hosts.addresses import database_flaw  # few commands have one

    if (flaw := database_flaw(value)) is not None:
        fail(key, flaw.problem, flaw.fix)
    return value


def read_store_file(key: str, value: object) -> str:
    if isinstance(value, str) and "://" in value:
        fail(
            key, "is an address, not the name of a file", "write the address into a file, and name that here"
        )
    return read_text(key, value)


def read_remote(key: str, value: object) -> str:
    text = read_text(key, value)
    if has_password(text):
        # Not repeated.
        fail(key, "holds a password", "let git find it: a credential helper, or a key for ssh")
    if text.startswith("-"):
        fail(
            key,
            f"{text!r} is no address of a repository",
            'write it like "git@git.example.org:team/site.git"',
        )
    return text


def without_password(url: str) -> str:
    """As it may be shown."""
    before, at, host = url.rpartition("@")
    scheme, slashes, who = before.partition("://")
    name, colon, _ = who.partition(":")
    shown = f"{scheme}{slashes}{name}{':***' if colon else ''}{at}{host}"
    return _PASSWORD_OPTION.sub(r"\1***", shown)


def without_stars(url: str) -> str:
    """What `without_password` has made, without a password: whoever connects may have it elsewhere."""
    return _STARS.sub("", url.replace(":***@", "@", 1))


def has_password(url: str) -> bool:
    return without_password(url) != url


def read_texts(key: str, value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        parts = ", ".join(f'"{part}"' for part in value.split())
        fail(key, "is one text where a list is needed", f"write {key.rpartition('.')[2]} = [{parts}]")
    if not isinstance(value, list):
        fail(key, f"{value!r} is not a list of texts", f'write {key.rpartition(".")[2]} = ["..."]')
    return tuple(read_text(f"{key}[{at}]", item) for at, item in enumerate(value))


_WHOLE_MAX = 1_000_000


def read_whole(key: str, value: object, least: int) -> int:
    # TOML's true is an int to Python.
    if not isinstance(value, int) or isinstance(value, bool):
        fail(key, f"{value!r} is not a whole number from {least} up", "write it without quotes, like 3")
    if not least <= value <= _WHOLE_MAX:
        fail(key, f"{value} is not a whole number from {least} up", f"at most {_WHOLE_MAX}")
    return value


def read_flag(key: str, value: object) -> bool:
    if not isinstance(value, bool):
        fail(key, f"{value!r} is neither true nor false", "write true or false, without quotes")
    return value


def read_count(key: str, value: object) -> int:
    return read_whole(key, value, 1)


def read_count_or_zero(key: str, value: object) -> int:
    return read_whole(key, value, 0)


def read_duration(key: str, value: object) -> float:
    try:
        return parse_duration(value)  # type: ignore[arg-type]  # it refuses what is neither text nor number
    except BadConfig as error:
        fail(key, error.message, error.hint)


def read_interval(key: str, value: object) -> float:
    seconds = read_duration(key, value)
    if seconds == 0:
        fail(key, "may not be zero", DURATION_HINT)
    return seconds


def read_one_of(known: tuple[str, ...], what: str) -> Callable[[str, object], str]:
    def read(key: str, value: object) -> str:
        text = read_text(key, value)
        if text not in known:
            quoted = ", ".join(f'"{word}"' for word in known)
            fail(key, f"{text!r} is {what}", hint(text, known) or f"write one of {quoted}")
        return text

    return read


def read_dollars(key: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1e6:
        fail(key, f"{value!r} is not an amount of dollars", "write it without quotes, like 2.50")
    return float(value)


def read_command(key: str, value: object) -> tuple[str, ...]:
    if isinstance(value, list) and value:
        program, *arguments = value
        if all(isinstance(argument, str) and "\0" not in argument for argument in arguments):
            return (read_text(f"{key}[0]", program), *arguments)  # an argument may well be empty
    return read_texts(key, value)


def read_size(key: str, value: object) -> int:
    """Bytes in `4GB`, `512 MiB`, `64k` or a number; all of them are powers of 1024."""
    if isinstance(value, int) and not isinstance(value, bool):
        size = float(value)
    elif isinstance(value, str) and (match := _SIZE.fullmatch(value.strip())):
        size = float(match[1]) * 1024 ** _POWER[(match[2] or "").upper()]
    else:
        fail(key, f"{value!r} is not a size", SIZE_HINT)
    if not 0 <= size <= _SIZE_MAX:
        fail(key, f"{value!r} is out of range for a size", SIZE_HINT)
    if size < _LEAST_BYTES:
        fail(key, f"{value!r} is less than 1 MB, and nothing could run", SIZE_HINT)
    return int(size)


def read_files(key: str, value: object) -> int:
    return read_whole(key, value, _LEAST_FILES)


def read_env_names(key: str, value: object) -> tuple[str, ...]:
    names = read_texts(key, value)
    for name in names:
        if not _ENV_NAME.fullmatch(name):
            fail(key, f"{name!r} is not a variable's name", 'for a value write set = { NAME = "value" }')
        if name == VAULT_KEY:
            fail(
                key,
                f"{name} opens all secrets, so no agent is given it",
                "name what it needs of them: secrets",
            )
    return names


def read_secret_names(key: str, value: object) -> tuple[str, ...]:
    names = read_env_names(key, value)
    for name in names:
        if name.startswith("MUSTER_"):
            fail(key, f"{name!r} is a variable that Muster sets itself", "name the secret otherwise")
    return names


def read_env(key: str, value: object) -> dict[str, str]:
    variables: dict[str, str] = {}
    for name in (table := read_table(key, value)).names():
        if not _ENV_NAME.fullmatch(name):
            fail(table.path(name), "is not a variable's name", "use letters, digits and '_'")
        variables[name] = table.read(name, _env_value, "")
    return variables


def _env_value(key: str, value: object) -> str:
    if not isinstance(value, str) or "\0" in value:
        fail(key, "is not a text", "put the value in quotes")  # it may be secret: never repeat it
    return value


def read_pattern(key: str, value: object) -> str:
    text = read_text(key, value)
    try:
        re.compile(text, re.MULTILINE)
    except re.error as error:
        fail(
            key, f"{text!r} is no regular expression: {error}", "write it like '^Error: .*', in single quotes"
        )
    return text


def read_exit_codes(key: str, value: object) -> dict[int, ErrorKind]:
    table = read_table(key, value)
    kinds: dict[int, ErrorKind] = {}
    for kind in ErrorKind:
        for code in table.read(kind.value, _codes, ()):
            if code in kinds:
                fail(table.path(kind), f"{code} is {kinds[code].value} as well", "keep it in one list")
            kinds[code] = kind
    table.refuse_the_rest()
    return kinds


def _codes(key: str, value: object) -> tuple[int, ...]:
    codes = value if isinstance(value, list) else None
    if codes is None or not all(type(code) is int and 1 <= code <= 255 for code in codes):
        fail(key, f"{value!r} is not a list of exit codes", "write it like [64, 65], each from 1 to 255")
    return tuple(codes)
