"""Each kind of channel, with a real receiver: servers of this machine, and a program of a desktop."""

from __future__ import annotations

import asyncio
import email
import email.policy
import os
import time
from collections.abc import Iterator
from email.message import EmailMessage
from pathlib import Path
from ssl import PROTOCOL_TLS_SERVER, SSLContext
from typing import Any

import msgspec
import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, LoginPassword
from msgspec.structs import replace
from standardwebhooks import Webhook as Receiver

from hook_receiver import Hook, receiving
from muster.config.channels import ChannelConfig
from muster.model.errors import NotAllowed
from muster.model.notify import Matter, Notification
from muster.model.webhooks import new_secret
from muster.outbound.channels import Teller, delivery_of
from muster.outbound.webhook_post import WebhookPost
from patience import PATIENCE_S

NOTE = Notification(
    id="digest_a1",
    title="api/a needs you",
    text="asks: <b>@everyone & \\033[31m?",
    link="https://muster.example/tasks/7",
    matters=(Matter.NEEDS_YOU,),
    at_ms=1_800_000_000_000,
)
PASSWORD = "correct horse battery"


async def in_thread(call: Any, *given: Any) -> Any:
    return await asyncio.to_thread(call, *given)


def tell(
    config: ChannelConfig, secret: str = "", wall_ms: int = NOTE.at_ms, note: Notification = NOTE
) -> tuple[int, str]:
    def post() -> WebhookPost:
        return WebhookPost(private=config.private, in_thread=in_thread, allow="channels.x.private = true")

    async def secret_of() -> str:
        return secret

    deliver = delivery_of(config, post=post, in_thread=in_thread, wall_ms=lambda: wall_ms)
    return asyncio.run(Teller(deliver, secret_of)(note))


@pytest.fixture
def hook() -> Iterator[Hook]:
    with receiving() as server:
        server.answers.set()
        yield server


def got(hook: Hook) -> tuple[dict[str, str], dict[str, Any]]:
    ((headers, body),) = hook.got
    return headers, msgspec.json.decode(body)


def test_ntfy(hook: Hook) -> None:
    url = hook.url.removesuffix("/hook") + "/under/crew"
    config = ChannelConfig("x", kind="ntfy", url=url, private=True)
    assert tell(config, "tk_secret_token") == (204, "answered 204")
    headers, body = got(hook)
    assert hook.paths == ["/under/"]
    assert (headers["authorization"], headers["webhook-id"]) == ("Bearer tk_secret_token", NOTE.id)
    assert body == {
        "topic": "crew",
        "title": NOTE.title,
        "message": NOTE.text,
        "priority": 4,
        "tags": ["needs-you"],
        "click": NOTE.link,
    }


def test_a_chat_is_given_no_call_of_everybody_and_no_markup(hook: Hook) -> None:
    assert tell(ChannelConfig("x", kind="slack", private=True), hook.url)[0] == 204
    text = got(hook)[1]["text"]
    assert text.splitlines() == [
        "```",
        "api/a needs you",
        "asks: &lt;b&gt;@\u200beveryone &amp; \\033[31m?",
        "```",
        "<https://muster.example/tasks/7|See to it>",
    ]


def test_nothing_that_a_task_says_is_formatted_in_a_chat(hook: Hook) -> None:
    typed = "*bold* _it_ ~x~ `code` ```py ````"
    marked = replace(NOTE, title="p/*a* needs you", text=typed)
    assert tell(ChannelConfig("x", kind="slack", private=True), hook.url, note=marked)[0] == 204
    first, inside, last = got(hook)[1]["text"].split("```")
    assert (first, last) == ("", "\n<https://muster.example/tasks/7|See to it>")
    assert inside.replace("\u200b", "") == f"\np/*a* needs you\n{typed}\n", "all of it is code"


def test_a_webhook_is_signed_where_it_has_a_secret(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = new_secret(b"s" * 32)
    config = ChannelConfig("x", kind="webhook", url=hook.url, private=True)
    assert tell(config, secret, int(time.time() * 1000))[0] == 204
    ((headers, body),) = hook.got
    told = Receiver(secret).verify(body, headers)
    assert (told["title"], told["link"], told["matters"]) == (NOTE.title, NOTE.link, ["needs-you"])


@pytest.mark.parametrize("secret", ["correct-horse", "whsec_p\u00e4ss", "whsec_not base64"])
def test_a_webhook_whose_secret_is_none_is_sent_nothing(hook: Hook, secret: str) -> None:
    status, said = tell(ChannelConfig("x", kind="webhook", url=hook.url, private=True), secret)
    assert status == 0 and said.startswith(
        "its secret is not one of Standard Webhooks; whsec_ and then Base64"
    )
    assert secret not in said and hook.got == []


def test_what_is_kept_of_a_try_has_no_secret(hook: Hook) -> None:
    status, said = tell(ChannelConfig("x", kind="slack"), "https://127.0.0.1:1/T000/very-secret")
    assert status == 0 and "channels.x.private = true" in said and "very-secret" not in said
    status, said = tell(ChannelConfig("x", kind="slack"), "no address: very-secret")
    assert (status, said) == (0, "its secret is no address of a webhook")

    class Repeats:
        async def __call__(self, note: Notification, secret: str) -> int:
            raise NotAllowed(f"the server said {secret}")

    async def secret_of() -> str:
        return "very-secret"

    assert asyncio.run(Teller(Repeats(), secret_of)(NOTE)) == (0, "the server said ***")
    assert hook.got == []


class Mailbox:
    """What a mail server has taken, and by whom; `refuses` is what it answers in place of that."""

    def __init__(self) -> None:
        self.got: list[EmailMessage] = []
        self.logins: list[Any] = []
        self.refuses = ""

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:
        if self.refuses:
            return self.refuses
        policy = email.policy.default
        self.got.append(email.message_from_bytes(envelope.content, policy=policy))  # type: ignore[arg-type]
        return "250 taken"

    def login(self, _server: Any, _session: Any, _envelope: Any, _mechanism: str, data: Any) -> AuthResult:
        assert isinstance(data, LoginPassword)
        self.logins.append(data.login)
        return AuthResult(success=data.password == PASSWORD.encode(), handled=False)


class MailServer(Controller):
    """On a port that is free."""

    def _trigger_server(self) -> None:
        assert self.server is not None
        self.port = self.server.sockets[0].getsockname()[1]
        super()._trigger_server()


def mail(port: int, **changes: Any) -> ChannelConfig:
    plain = {"kind": "email", "server": f"localhost:{port}", "tls": "none"}
    return ChannelConfig("x", **{**plain, "sender": "crew@a.example", "to": ("ada@b.example",), **changes})


def test_mail_is_one_message_however_often_it_is_sent() -> None:
    box = Mailbox()
    server = MailServer(box, hostname="127.0.0.1", port=0, ready_timeout=PATIENCE_S)
    server.start()
    try:
        config = mail(server.port, server=f"127.0.0.1:{server.port}")
        assert tell(config) == tell(config) == (250, "answered 250")
        box.refuses = "452 no room for this"
        assert tell(config) == (0, "the mail server answers 452: no room for this")
    finally:
        server.stop()
    first, again = box.got
    assert first["message-id"] == again["message-id"] == "<digest_a1@a.example>"
    assert (first["subject"], first["to"]) == ("[muster] api/a needs you", "ada@b.example")
    assert first["auto-submitted"] == "auto-generated"
    assert first.get_content().splitlines() == [NOTE.text, "", NOTE.link]
    status, said = tell(config)
    assert status == 0 and said.startswith("no answer of 127.0.0.1:")


def test_mail_logs_in_only_where_the_server_is_who_it_says(
    certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    box, context = Mailbox(), SSLContext(PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    server = MailServer(
        box,
        hostname="127.0.0.1",
        port=0,
        ready_timeout=PATIENCE_S,
        tls_context=context,
        require_starttls=True,
        authenticator=box.login,
        auth_required=True,
    )
    server.start()
    try:
        config = mail(server.port, tls="starttls", user="crew")
        status, said = tell(config, PASSWORD)
        assert status == 0 and "certificate" in said.lower() and box.logins == []
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
        assert tell(config, PASSWORD) == (250, "answered 250")
        status, said = tell(config, "wrong password")
        assert status == 0 and said.startswith("the mail server answers 535") and "wrong password" not in said
        status, said = tell(config, "p\u00e4ssword")
        assert status == 0 and "ASCII letters alone" in said and "\u00e4" not in said
        status, said = tell(mail(server.port, server=f"no..host:{server.port}"), PASSWORD)
        assert status == 0 and said.startswith("the mail server's name, the user or the password")
    finally:
        server.stop()
    assert set(box.logins) == {b"crew"} and len(box.got) == 1


@pytest.fixture
def shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A desktop: what it was asked to show, an argument a line."""
    log = tmp_path / "shown"
    program = tmp_path / "notify-send"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >> {log}\nexec env > {tmp_path}/env\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return log


@pytest.mark.skipif("sys.platform == 'darwin'", reason="a Mac is told by osascript")
def test_a_desktop_is_given_texts_and_no_options_or_markup(
    shown: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUSTER_VAULT_KEY", "sealed")
    assert tell(ChannelConfig("x", kind="desktop")) == (200, "answered 200")
    assert shown.read_text().splitlines() == [
        *("--app-name=Muster", "--urgency=critical", "--", NOTE.title),
        "asks: &lt;b&gt;@everyone &amp; \\\\033[31m?",
        NOTE.link,
    ]
    assert "MUSTER_VAULT_KEY" not in shown.with_name("env").read_text()
    shown.with_name("notify-send").write_text("#!/bin/sh\necho 'no bus' >&2\nexit 1\n")
    assert tell(ChannelConfig("x", kind="desktop"))[1].startswith("notify-send ended with 1: no bus")
    monkeypatch.setenv("PATH", str(shown.with_name("nothing")))
    assert tell(ChannelConfig("x", kind="desktop"))[1].startswith("this machine has no notify-send")


@pytest.mark.skipif("sys.platform == 'darwin'", reason="a Mac is told by osascript")
def test_a_desktop_is_not_told_the_title_twice(shown: Path) -> None:
    assert tell(ChannelConfig("x", kind="desktop"), note=replace(NOTE, text="", link=""))[0] == 200
    assert shown.read_text().splitlines()[-2:] == [NOTE.title, ""]


def test_a_mac_is_given_texts_as_arguments_of_a_script(monkeypatch: pytest.MonkeyPatch) -> None:
    from muster.outbound import desktop

    monkeypatch.setattr(desktop.sys, "platform", "darwin")
    program, *argv = desktop._argv("a title", 'text" & quit', True)
    assert (program, argv[-2:]) == ("osascript", ["a title", 'text" & quit'])
    assert all("title" not in part or "argv" in part for part in argv[:-2])
