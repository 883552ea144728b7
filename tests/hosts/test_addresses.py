"""Addresses of a database or a Valkey that cannot be: each is told what is wrong, and none of it is repeated."""

from __future__ import annotations

import pytest

from muster.config.values import read_runtime_url, read_store, read_store_file
from muster.hosts.addresses import database_flaw, misread
from muster.model.errors import BadConfig
from muster.runtimes.valkey.address import address_of

SECRET = "hunter2", "longSecret"
CUT = [(char, code) for char, code in zip("/#?[]", ("%2F", "%23", "%3F", "%5B", "%5D"), strict=True)]


def told(url: str) -> str:
    flaw = database_flaw(url)
    assert flaw is not None, url
    said = f"{flaw.problem} | {flaw.fix}"
    assert not [word for word in SECRET if word in said], said
    with pytest.raises(BadConfig) as refused:
        read_store("serve.store", url)
    assert (refused.value.message, refused.value.hint) == (
        f"muster.toml: serve.store: {flaw.problem}",
        flaw.fix,
    )
    return said


@pytest.mark.parametrize(("char", "code"), [*CUT, ("@", "%40")])
@pytest.mark.parametrize("password", ["hunter2{}longSecret", "123{}longSecret", "{}longSecret", "hunter2{}"])
def test_a_password_that_is_not_encoded(char: str, code: str, password: str) -> None:
    said = told(f"postgresql://m2:{password.format(char)}@127.0.0.1:5511/m2db")
    assert f"holds a {char} that has to be percent-encoded" in said and f"{char} is {code}" in said
    assert database_flaw(f"postgresql://m2:{password.format(code)}@127.0.0.1:5511/m2db") is None


def test_a_secret_that_looks_like_a_parameter() -> None:
    assert "percent-encoded" in told("postgresql://m2:123?longSecret=1@127.0.0.1:5511/m2db")
    assert "NAME=VALUE" in told("postgresql://127.0.0.1:5511/m2db?longSecret")
    assert "NAME=VALUE" in told("postgresql://127.0.0.1:5511/m2db?long%53ecret=1")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://m2:hunter2longSecret", "USER:PASSWORD@HOST"),
        ("postgresql://m2@db:x5511/x", "port"),
        ("postgresql://m2@db:0/x", "port"),
        ("postgresql://m2@db:65536/x", "port"),
        ("postgresql://m2@a,b:x/x", "port"),
        ("postgresql://m2@db/x?port=x", "port"),
        ("postgresql:///x?host=a,b,c&port=1,2", "2 ports for 3 hosts"),
        ("postgresql://m2@::1/x", "brackets"),
        ("postgresql://m2@[::1/x", "brackets"),
        ("postgresql://m2@[hunter2]/x", "brackets"),
        ("postgresql://m2@db/x?sslmode=on", "verify-full"),
        ("postgresql://m2@db/x?target_session_attrs=yes", "read-write"),
        ("postgresql://m2:hunter2@db/x\nlongSecret", "line break"),
    ],
)
def test_what_else_cannot_be(url: str, said: str) -> None:
    assert said in told(url)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://m2:a:b@db/x",
        "postgresql://m2@a:1,b:2,c/x?target_session_attrs=any",
        "postgresql:///x?host=/run/pg,db&port=5432",
        "postgresql:///x?host=/run/pg&user=ada@corp",
        "postgresql://m2@%2Frun%2Fpg/x",
        "postgresql://m2@[::1]:5432/x?sslmode=verify-full&sslrootcert=/ca.pem",
        "postgresql://m2@[fe80::1%25eth0]/x?application_name=a%20b",
        "postgresql://",
    ],
)
def test_what_can_be_is_taken(url: str) -> None:
    assert database_flaw(url) is None and misread(url) is None
    assert read_store("serve.store", url) == url


@pytest.mark.parametrize(
    "value", [["postgresql://m2:hunter2@db/x"], 5, "mysql://m2:hunter2@db/x", " hunter2"]
)
def test_what_is_no_address_at_all_is_not_repeated_either(value: object) -> None:
    for read in (read_store, read_runtime_url):
        with pytest.raises(BadConfig) as refused:
            read("the.key", value)
        assert "hunter2" not in refused.value.message


def test_an_address_in_place_of_a_files_name_is_not_repeated() -> None:
    with pytest.raises(BadConfig) as refused:
        read_store_file("serve.store_file", "postgresql://m2:hunter2@db/x")
    assert "hunter2" not in refused.value.message and "not the name of a file" in refused.value.message


@pytest.mark.parametrize(("char", "code"), CUT)
@pytest.mark.parametrize("password", ["hunter2{}longSecret", "123{}longSecret=1", "{}longSecret"])
@pytest.mark.parametrize("user", ["", "m2"])
def test_a_valkeys_password_that_is_not_encoded(char: str, code: str, password: str, user: str) -> None:
    with pytest.raises(BadConfig) as refused:
        address_of(f"valkey://{user}:{password.format(char)}@127.0.0.1:6379/0")
    said = f"{refused.value.message} | {refused.value.hint}"
    assert f"holds a {char} that has to be percent-encoded" in said and f"{char} is {code}" in said
    assert not [word for word in SECRET if word in said], said
    good = address_of(f"valkey://{user}:{password.format(code)}@127.0.0.1:6379/0")
    assert good.password == password.format(char) and good.port == 6379
