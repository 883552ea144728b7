"""Messages by e-mail, through a mail server that settings name."""

from __future__ import annotations

import smtplib
import ssl
from collections.abc import Awaitable, Callable
from email.message import EmailMessage
from email.utils import formatdate
from typing import Any

from muster.config.channels import PLAIN, TLS, ChannelConfig
from muster.model.errors import NotAllowed, Unavailable
from muster.model.notify import Notification

ANSWER_S = 15.0
"""Of one step of the conversation."""
TAKEN = 250


class Email:
    """As outbound.channels.Delivery."""

    def __init__(self, config: ChannelConfig, in_thread: Callable[..., Awaitable[Any]]) -> None:
        self._config, self._in_thread = config, in_thread

    async def __call__(self, note: Notification, secret: str) -> int:
        status: int = await self._in_thread(self._send, self._message(note), secret)
        return status

    def _message(self, note: Notification) -> EmailMessage:
        message = EmailMessage()
        message["From"] = self._config.sender
        message["To"] = ", ".join(self._config.to)
        message["Subject"] = f"[muster] {note.title}"
        message["Date"] = formatdate(note.at_ms / 1000)
        # However often it is sent, it is one message to whoever reads it.
        message["Message-ID"] = f"<{note.id}@{self._config.sender.rpartition('@')[2]}>"
        message["Auto-Submitted"] = "auto-generated"
        parts = [note.text, note.link]
        message.set_content("\n\n".join(part for part in parts if part) or note.title)
        return message

    def _send(self, message: EmailMessage, secret: str) -> int:
        host, port = self._config.smtp
        try:
            with self._connected(host, port) as server:
                if self._config.user:
                    server.login(self._config.user, secret)
                server.send_message(message)  # where some are refused, the others have it
        except smtplib.SMTPResponseException as error:
            said = error.smtp_error
            told = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
            raise Unavailable(f"the mail server answers {error.smtp_code}: {told}") from None
        except smtplib.SMTPRecipientsRefused as error:
            raise Unavailable(f"the mail server takes nothing for {', '.join(error.recipients)}") from None
        except smtplib.SMTPNotSupportedError as error:
            raise NotAllowed(f"the mail server cannot do this: {error}") from None
        except UnicodeError:  # what it says has the text in it, which may be the password
            raise NotAllowed(
                "the mail server's name, the user or the password has letters that SMTP does not take",
                "ASCII letters alone",
            ) from None
        except (OSError, smtplib.SMTPException) as error:
            raise Unavailable(f"no answer of {self._config.server}: {error}") from None
        return TAKEN

    def _connected(self, host: str, port: int) -> smtplib.SMTP:
        if self._config.tls == TLS:
            return smtplib.SMTP_SSL(host, port, timeout=ANSWER_S, context=ssl.create_default_context())
        server = smtplib.SMTP(host, port, timeout=ANSWER_S)
        if self._config.tls == PLAIN:
            return server
        try:
            server.starttls(context=ssl.create_default_context())
        except BaseException:
            server.close()
            raise
        return server
