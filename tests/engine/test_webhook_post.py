"""Requests to addresses that others have named: where they go, and where they do not."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from muster.hosts.detached_call import detached_call
from muster.model.errors import BadInput, NotAllowed, Unavailable
from muster.outbound.webhook_post import WebhookPost, forbidden

ALWAYS = (
    *("169.254.169.254", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::", "fe80::1"),
    *(
        "168.63.129.16",
        "100.100.100.200",
        "fd00:ec2::254",
        "0.0.0.0",
        "0.1.2.3",
        "::",
        "224.0.0.1",
        "ff02::1",
    ),
    *("::169.254.169.254", "::ffff:0:169.254.169.254", "64:ff9b:1::a9fe:a9fe"),
)
OWN = (
    *("127.0.0.1", "::1", "10.0.0.1", "192.168.1.1", "100.64.0.1", "fc00::1", "fec0::1", "::ffff:127.0.0.1"),
    *("::127.0.0.1", "::ffff:0:127.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::7f00:1", "2002:7f00:1::"),
    # Of nobody, for examples, or of a network that is no part of the public one.
    *("192.88.99.1", "3fff::1", "5f00::1", "2001:db8::1", "192.0.2.1", "198.18.0.1", "240.0.0.1", "100::1"),
    *("4000::1", "::8.8.8.8", "::ffff:8.8.8.8"),
)
PUBLIC = ("8.8.8.8", "2606:4700::1111", "2001:4860:4860::8888", "64:ff9b::808:808")


@pytest.mark.parametrize("address", ALWAYS)
def test_metadata_and_what_is_no_machine_are_refused_always(address: str) -> None:
    assert forbidden(address, private=False) and forbidden(address, private=True)


@pytest.mark.parametrize("address", OWN)
def test_private_addresses_need_the_setting(address: str) -> None:
    assert forbidden(address, private=False)
    assert not forbidden(address, private=True)


def test_public_addresses_are_fine() -> None:
    assert not any(forbidden(address, private=False) for address in PUBLIC)


def post(url: str, *, private: bool = True, names: Callable[..., Any] = socket.getaddrinfo) -> int:
    async def in_thread(call: Callable[..., Any], *given: Any) -> Any:
        return await detached_call(names if call is socket.getaddrinfo else call, *given)

    ask: Awaitable[int] = WebhookPost(private=private, in_thread=in_thread)(url, {"webhook-id": "m"}, b"{}")
    return asyncio.run(asyncio.wait_for(ask, 60))


async def received(answer: bytes, url: str, tls: ssl.SSLContext | None = None) -> tuple[int, bytes]:
    """The status, and what the receiver was sent."""
    got = bytearray()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        got.extend(await reader.readuntil(b"\r\n\r\n") + await reader.readexactly(2))
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    async with server:
        port = server.sockets[0].getsockname()[1]
        sender = WebhookPost(private=True, in_thread=detached_call)
        status = await sender(url.format(port=port), {"webhook-id": "m"}, b"{}")
    return status, bytes(got)


def test_what_a_receiver_gets() -> None:
    answer = b"HTTP/1.1 202 Accepted\r\ncontent-length: 99999999\r\n\r\n"
    status, got = asyncio.run(received(answer, "http://localhost:{port}/a b?x=ä\x01"))
    assert status == 202, "it does not wait for a body that nobody reads"
    head, _, body = got.partition(b"\r\n\r\n")
    assert (head.split(b"\r\n")[0], body) == (b"POST /a%20b?x=%C3%A4%01 HTTP/1.1", b"{}")
    assert b"webhook-id: m" in head and b"content-length: 2" in head


def test_a_redirect_is_an_answer_and_not_a_way() -> None:
    answer = b"HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/\r\n\r\n"
    assert asyncio.run(received(answer, "http://127.0.0.1:{port}"))[0] == 302


def test_what_is_no_answer_is_none() -> None:
    with pytest.raises(Unavailable):
        asyncio.run(received(b"nonsense\r\n\r\n", "http://127.0.0.1:{port}"))
    with pytest.raises(Unavailable):
        asyncio.run(received(b"", "http://127.0.0.1:{port}"))
    endless = b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 20_000
    with pytest.raises(Unavailable, match="what came is no answer"):
        asyncio.run(received(endless, "http://127.0.0.1:{port}"))


def test_without_the_setting_nothing_goes_to_this_machine_or_in_clear() -> None:
    with pytest.raises(NotAllowed, match="not https"):
        post("http://example.org/", private=False)
    with pytest.raises(NotAllowed, match=r"127\.0\.0\.1"):
        post("https://127.0.0.1/", private=False)
    with pytest.raises(NotAllowed, match="secrets"):
        post("http://169.254.169.254/latest/meta-data")


def judged(url: str, *, private: bool = False, names: Callable[..., Any] = socket.getaddrinfo) -> str:
    """The warning of whoever adds it."""

    async def in_thread(call: Callable[..., Any], *given: Any) -> Any:
        return await detached_call(names if call is socket.getaddrinfo else call, *given)

    return asyncio.run(WebhookPost(private=private, in_thread=in_thread).judge(url))


def leads_to(*addresses: str) -> Callable[..., Any]:
    return lambda *_: [(0, 0, 0, "", (address, 443)) for address in addresses]


@pytest.mark.parametrize(
    ("url", "why", "helps"),
    [
        ("http://example.org/x", "is not https", True),
        ("https://127.0.0.1/x", "private network", True),
        ("https://127.1/x", "127.0.0.1", True),
        ("https://2130706433/x", "127.0.0.1", True),
        ("https://[::1]:8/x", "private network", True),
        ("https://[::127.0.0.1]/", "private network", True),
        ("https://[::ffff:0:127.0.0.1]/", "private network", True),
        ("https://192.88.99.1/", "private network", True),
        ("https://[3fff::1]/", "private network", True),
        ("https://[5f00::1]/", "private network", True),
        ("https://localhost:99/x", "127.0.0.1", True),
        ("https://a.localhost./x", "127.0.0.1", True),
        ("https://10.1.2.3", "private network", True),
        ("https://169.254.169.254/latest", "clouds keep their secrets", False),
        ("https://169.254.7.7/", "to 169.254.7.7, which is link-local", False),
        ("https://[fe80::1]/", "to fe80::1, which is link-local", False),
        ("https://127.0.0.1/", "to 127.0.0.1, which is of this machine", True),
        ("https://localhost/", "to localhost, 127.0.0.1, which is of this machine", True),
        ("https://0.0.0.0/", "no single machine", False),
        ("https://example.org:99999/", "is no address", False),
        (f"https://{'a' * 64}.org/", "is no address", False),
    ],
)
def test_what_never_could_be_sent_is_refused_as_it_is_added(url: str, why: str, helps: bool) -> None:
    with pytest.raises(BadInput, match="nothing was added") as refused:
        judged(url)
    assert why in refused.value.message
    assert ("webhooks.private = true" in refused.value.hint) is helps
    if helps:
        judged(url, private=True, names=leads_to("127.0.0.1"))


def test_a_name_that_leads_nowhere_now_is_warned_of_and_added() -> None:
    """Tomorrow it may lead elsewhere, and each message is judged by what it leads to then."""
    url = "https://hooks.example.org/x"
    assert judged(url, names=leads_to("8.8.8.8")) == ""
    assert "is 10.0.0.5, which is of this machine or of a private network now" in judged(
        url, names=leads_to("8.8.8.8", "10.0.0.5")
    )
    assert judged(url, names=leads_to("10.0.0.5"), private=True) == ""

    def unknown(*_: object) -> list[Any]:
        raise socket.gaierror(-2, "Name or service not known")

    assert "has no address now" in judged(url, names=unknown)


def test_one_forbidden_address_of_a_name_forbids_the_name() -> None:
    def names(*_: object) -> list[Any]:
        return [(0, 0, 0, "", ("8.8.8.8", 443)), (0, 0, 0, "", ("169.254.169.254", 443))]

    with pytest.raises(NotAllowed, match="nothing was sent"):
        post("https://example.org/", names=names)


def test_the_connection_goes_to_the_address_that_was_judged() -> None:
    """A name that leads elsewhere when it is asked again is asked once."""
    with socket.create_server(("127.0.0.1", 0)) as receiver:
        port, asked = receiver.getsockname()[1], []

        def names(host: str, *_: object) -> list[Any]:
            asked.append(host)
            return [(0, 0, 0, "", ("127.0.0.1", port))]

        async def answer() -> int:
            loop = asyncio.get_running_loop()
            sending = asyncio.create_task(
                WebhookPost(private=True, in_thread=lambda _, *given: detached_call(names, *given))(
                    f"http://moves.invalid:{port}/", {}, b"{}"
                )
            )
            connection, _ = await loop.run_in_executor(None, receiver.accept)
            with connection:
                connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                return await sending

        assert asyncio.run(answer()) == 200
        assert asked == ["moves.invalid"]


@pytest.mark.parametrize(
    ("host", "trusted", "refused"),
    [
        ("localhost", True, ""),
        ("localhost", False, "self-signed certificate"),
        ("127.0.0.1", True, "IP address mismatch"),
    ],
)
def test_https_goes_to_who_proves_the_name_alone(
    certificate: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    host: str,
    trusted: bool,
    refused: str,
) -> None:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(*certificate)
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    sent = received(b"HTTP/1.1 204 No Content\r\n\r\n", f"https://{host}:{{port}}/hook", tls=tls)
    if not refused:
        status, got = asyncio.run(sent)
        assert (status, got.startswith(b"POST /hook HTTP/1.1\r\nhost: localhost")) == (204, True)
        return
    with pytest.raises(Unavailable, match=refused):
        asyncio.run(sent)
