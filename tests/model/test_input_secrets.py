"""Which values of an input context are secrets, and what is shown in their place."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.model.errors import BadInput
from muster.model.input_secrets import (
    SECRETS_MAX,
    by_stars,
    is_secret_name,
    secrets_in,
    shown,
    stars_of,
    whole,
)
from muster.model.secrets import VALUE_CHARS_MAX

SECRET = frozenset(
    {
        *(
            "apiKey",
            "api_key",
            "API-KEY",
            "apikey",
            "x-api-key",
            "openaiApiKey",
        ),
        *(
            "OPENAI_API_KEY_2",
            "password",
            "dbPassword",
            "DB_PASSWORD",
            "DBPassword",
            "passwd",
        ),
        *(
            "pwd",
            "passphrase",
            "passwords",
            "secret",
            "clientSecret",
            "clientsecret",
        ),
        *(
            "aws_secret_access_key",
            "accessKey",
            "accessKeyId",
            "token",
            "githubToken",
            "githubtoken",
        ),
        *(
            "GITHUB_TOKEN",
            "access.token",
            "refreshToken",
            "tokens",
            "authTokens",
            "credential",
        ),
        *(
            "credentials",
            "awsCredentials",
            "privateKey",
            "private_key",
            "sshKey",
            "signingKey",
        ),
        *(
            "encryptionKey",
            "Authorization",
            "proxy-authorization",
            "bearer",
            "jwt",
            "cookie",
        ),
        *(
            "Set-Cookie",
            "auth",
            "basicAuth",
            "dbPass",
            "smtp_pass",
            "dsn",
        ),
        *(
            "connectionString",
            "connection_string",
            "storageKey",
            "secretId",
            "passwordHash",
        ),
    }
)
NO_SECRET = frozenset(
    {
        *(
            "branch",
            "maxTokens",
            "max_tokens",
            "token_count",
            "tokenCount",
            "tokensUsed",
        ),
        *(
            "tokenLimit",
            "totalTokens",
            "tokenizer",
            "secretary",
            "passwordFile",
            "password_file",
        ),
        *(
            "tokenUrl",
            "secretName",
            "tokenType",
            "passRate",
            "author",
            "authors",
        ),
        *(
            "authored",
            "key",
            "publicKey",
            "sortKey",
            "primaryKey",
            "keys",
        ),
        *(
            "monkey",
            "path",
            "compass",
            "keyboard",
            "scope",
            "url",
        ),
        *(
            "1",
            "ä",
        ),
    }
)
MARKED = {"$secret": "as marked"}


@pytest.mark.parametrize("name", sorted(SECRET))
def test_a_name_that_says_so_makes_a_secret(name: str) -> None:
    assert is_secret_name(name)
    assert secrets_in({name: "value"}) == {f"/{name}": "value"}


@pytest.mark.parametrize("name", sorted(NO_SECRET))
def test_a_name_that_only_looks_like_it_makes_none(name: str) -> None:
    assert not is_secret_name(name)
    assert secrets_in({name: "value"}) == {}


def test_only_texts_are_secrets_and_all_below_such_a_name() -> None:
    context = {
        "tokens": 4000,
        "password": None,
        "secret": "",
        "credentials": {"user": "ann", "list": ["one", {"two": "2"}, 3], "ok": True},
        "deep": [{"a/b~c": {"apiKey": "four"}}],
        "note": MARKED,
        "plain": "text",
    }
    assert secrets_in(context) == {
        "/credentials/user": "ann",
        "/credentials/list/0": "one",
        "/credentials/list/1/two": "2",
        "/deep/0/a~1b~0c/apiKey": "four",
        "/note": "as marked",
    }


@pytest.mark.parametrize(
    ("context", "pointer"),
    [
        ({"a": {"$secret": 1}}, "/inputContext/a"),
        ({"a": {"$secret": ""}}, "/inputContext/a"),
        ({"a": [{"$secret": "x", "more": 1}]}, "/inputContext/a/0"),
        ({"$secret": {"$secret": "x"}}, "/inputContext"),
        ({"a/b": {"$secret": None}}, "/inputContext/a~1b"),
        ({"db": {"password": "********"}}, "/inputContext/db/password"),
        ({"password": "********#00112233"}, "/inputContext/password"),
        ({"a": {"$secret": "***"}}, "/inputContext/a"),
        ({"token": "x" * (VALUE_CHARS_MAX + 1)}, "/inputContext/token"),
        ({"tokens": [f"t{n}" for n in range(SECRETS_MAX + 1)]}, "/inputContext"),
    ],
)
def test_what_cannot_be_a_secret_is_refused_where_it_stands(context: dict[str, Any], pointer: str) -> None:
    with pytest.raises(BadInput) as refused:
        secrets_in(context)
    assert refused.value.pointer == pointer
    assert "xxxxxxxx" not in refused.value.message
    assert refused.value.message.endswith("nothing was changed")


def test_stars_that_are_sent_back_stand_for_their_value_wherever_they_stand() -> None:
    context = {"keys": [{"apiKey": "first"}, {"apiKey": "second"}], "note": MARKED}
    secrets = secrets_in(context)
    seen = shown(context, secrets, lambda value: f"{sum(value.encode()):08x}")
    kept = by_stars(seen, secrets)
    assert stars_of(seen) == set(kept)
    assert secrets_in(seen, kept) == secrets
    swapped = {"keys": seen["keys"][::-1], "token": seen["note"]["$secret"]}
    assert secrets_in(swapped, kept) == {
        "/keys/0/apiKey": "second",
        "/keys/1/apiKey": "first",
        "/token": "as marked",
    }
    with pytest.raises(BadInput) as refused:
        secrets_in({"moved": seen["keys"][0]["apiKey"]}, kept)
    assert refused.value.pointer == "/inputContext/moved"


_NAMES = st.sampled_from(["apiKey", "a/b", "~1", "", "db", "token", "n"])
_LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=5).filter(lambda text: "*" not in text)
_MARKS = (
    st.text(min_size=1, max_size=5).filter(lambda text: "*" not in text).map(lambda text: {"$secret": text})
)
_NODES = st.recursive(
    _LEAVES | _MARKS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(_NAMES, _NODES, max_size=4))
def test_what_is_shown_and_the_secrets_make_the_whole_again(context: dict[str, Any]) -> None:
    secrets = secrets_in(context)
    seen = shown(context, secrets, lambda value: value.encode().hex())
    assert whole(seen, secrets) == _unmarked(context)
    assert secrets_in(seen, by_stars(seen, secrets)) == secrets


def _unmarked(node: Any) -> Any:
    if isinstance(node, dict):
        return node.get("$secret") or {name: _unmarked(value) for name, value in node.items()}
    return [_unmarked(one) for one in node] if isinstance(node, list) else node
