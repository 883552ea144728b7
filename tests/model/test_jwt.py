"""Tokens of workers: what is signed as RFC 7515 says, and nothing else that says so."""

from __future__ import annotations

import base64
import json

import pytest

from muster.model import jwt

KEY, OTHER = b"k" * 32, b"o" * 32
CLAIMS = {"sub": "worker-aaaaaaaa", "exp": 1300819380}


def part(content: object) -> str:
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def test_the_signature_is_that_of_the_rfc() -> None:
    """Of RFC 7515, A.1: its own header and claims, letter by letter, with its key."""
    key = "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow"
    text = (
        "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9"
        ".eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ"
    )
    mac = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
    assert part(jwt._mac(text, base64.urlsafe_b64decode(key + "=="))) == mac


def test_what_was_signed_comes_back_by_its_key_alone() -> None:
    token = jwt.signed(CLAIMS, "7", KEY)
    assert jwt.kid_of(token) == "7"
    assert json.loads(jwt.claims_of(token, [OTHER, KEY])) == CLAIMS
    assert json.loads(base64.urlsafe_b64decode(token.split(".")[0] + "==")) == {
        "alg": "HS256",
        "typ": "JWT",
        "kid": "7",
    }
    for keys in ([], [OTHER]):
        with pytest.raises(ValueError, match="no key of ours"):
            jwt.claims_of(token, keys)


@pytest.mark.parametrize(
    "header",
    [
        {"alg": "none", "typ": "JWT", "kid": "7"},
        {"alg": "None", "typ": "JWT", "kid": "7"},
        {"alg": "HS512", "typ": "JWT", "kid": "7"},
        {"alg": "RS256", "typ": "JWT", "kid": "7"},
        {"alg": "ES256", "typ": "JWT", "kid": "7"},
        {"alg": "hs256", "typ": "JWT", "kid": "7"},
        {"alg": "HS256", "typ": "JWE", "kid": "7"},
        {"alg": "HS256", "typ": "JWT"},
        {"alg": "HS256", "typ": "JWT", "kid": 7},
        {"alg": "HS256", "typ": "JWT", "kid": "7", "crit": ["exp"]},
        {"alg": "HS256", "typ": "JWT", "kid": "7", "jwk": {"kty": "oct", "k": part(b"o" * 32)}},
        {"alg": "HS256", "typ": "JWT", "kid": "7", "jku": "https://eve.example/keys"},
        [],
        b"{",
        b"\xff\xfe",
        b"",
    ],
)
def test_no_other_way_to_sign_is_believed(header: object) -> None:
    """Although it is signed by our key, or by the one that it brings itself."""
    text = f"{part(header)}.{part(CLAIMS)}"
    for mac in (part(jwt._mac(text, KEY)), part(jwt._mac(text, OTHER)), ""):
        with pytest.raises(ValueError):
            jwt.claims_of(f"{text}.{mac}", [KEY])


def test_only_what_begins_as_ours_is_taken_for_one() -> None:
    assert jwt.looks_like(jwt.signed(CLAIMS, "7", KEY))
    for other in ("mst_abc", "eyJx.worker-aaaaaaaa.0123", "a.b.c", "", part({"alg": "none"}) + ".a.b"):
        assert not jwt.looks_like(other)


def test_a_token_that_was_touched_anywhere_is_none() -> None:
    token = jwt.signed(CLAIMS, "7", KEY)
    for at, char in enumerate(token):
        other = "A" if char != "A" else "B"
        with pytest.raises(ValueError):
            jwt.claims_of(token[:at] + other + token[at + 1 :], [KEY])
    for wrong in (
        token + "=",
        token + "A",
        token[:-1],
        token + ".x",
        f" {token}",
        f"{token}\n",
        "a.b.c",
        "..",
        "",
    ):
        with pytest.raises(ValueError):
            jwt.claims_of(wrong, [KEY])
    with pytest.raises(ValueError):
        jwt.claims_of(jwt.signed({"sub": "x" * jwt.CHARS_MAX}, "7", KEY), [KEY])
