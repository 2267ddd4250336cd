"""Sends messages to channels. No error contains an address or a secret."""

import smtplib
import ssl
import uuid
from email.message import EmailMessage
from email.utils import getaddresses
from functools import lru_cache
from typing import Any
from urllib.parse import unquote, urlsplit

from truelog.notifications import message as forms
from truelog.notifications.message import Message
from truelog.storage import exact_json
from truelog.support.errors import NoticeRefused, NotSetUp, ReceiverDown
from truelog.support.http_client import authorities, post_text
from truelog.support.setting_groups.notifications import Channel

_UNENCRYPTED = (
    "the mail server does not offer STARTTLS, so the password would travel unencrypted: "
    "use a url with smtps, a server with STARTTLS, or a url without a user"
)
_PAGERDUTY = "https://events.pagerduty.com/v2/enqueue"


def send(channel: Channel, message: Message, seconds: float) -> None:
    """Send a message, and return once the channel has accepted it.

    Raises:
        ReceiverDown: the channel did not accept it. A later try may succeed.
        NoticeRefused: the channel will never accept it.
        NotSetUp: the channel's address is not valid, or its mail server would get the password unencrypted.
    """
    if channel.kind == "email":
        _mail(channel, message, seconds)
        return
    headers = {"Idempotency-Key": message.key}
    url, token = channel.url.get_secret_value(), channel.token.get_secret_value()
    if channel.kind == "pagerduty":
        _post(url or _PAGERDUTY, {"routing_key": token} | forms.pagerduty(message), headers, seconds)
        return
    if token:
        headers["Authorization"] = f"Bearer {token}"
    if channel.kind == "alertmanager":
        _post(f"{url.rstrip('/')}/api/v2/alerts", forms.alertmanager(message), headers, seconds)
    else:
        _post(url, forms.webhook(message), headers, seconds)


def _post(url: str, body: Any, headers: dict[str, str], seconds: float) -> None:
    """POST JSON whose numbers have all digits of the row."""
    post_text(url, exact_json.write(body), headers, seconds)


def _mail(channel: Channel, message: Message, seconds: float) -> None:
    """Send a mail. `smtps` is encrypted from the beginning; `smtp` is, if the server can encrypt."""
    try:
        url = urlsplit(channel.url.get_secret_value())
        host, port = url.hostname, url.port
    except ValueError:
        host, port = None, None
    if not host or url.scheme not in ("smtp", "smtps") or not channel.to.strip():
        raise NotSetUp("a mail channel needs the url of a mail server and `to`: see docs/notifications.md") from None
    mail, context = _made(channel, message), authorities()
    try:
        server = (
            smtplib.SMTP_SSL(host, port or 465, timeout=seconds, context=context)
            if url.scheme == "smtps"
            else smtplib.SMTP(host, port or 587, timeout=seconds)
        )
        with server:
            encrypted = url.scheme == "smtps" or _encrypt(server, context)
            if url.username and not encrypted:
                raise NotSetUp(_UNENCRYPTED)
            if url.username:
                server.login(unquote(url.username), unquote(url.password or ""))
            _hand_over(server, mail, message.id)
    except (smtplib.SMTPException, OSError, ValueError) as error:  # the texts of these errors may quote addresses
        raise ReceiverDown(f"the mail server did not accept it: {type(error).__name__}") from None


def _hand_over(server: smtplib.SMTP, mail: EmailMessage, message: uuid.UUID) -> None:
    """Give the server the mail for each address that has not accepted it yet.

    Raises:
        ReceiverDown: an address does not accept it for now, or none accepts it.
        NoticeRefused: an address never accepts it, and the others have it.
    """
    addresses, accepted = {each for _, each in getaddresses([mail["To"]])}, _accepted(message)
    try:
        left = sorted(addresses - accepted)
        refused = server.send_message(mail, to_addrs=left)
        accepted.update(left)
        accepted.difference_update(refused)
    except smtplib.SMTPRecipientsRefused as error:
        refused = error.recipients
    if not refused:
        return
    codes = sorted({code for code, _ in refused.values()})
    why = f"the mail server refused {len(refused)} of {len(addresses)} addresses: {', '.join(map(str, codes))}"
    raise NoticeRefused(why) if accepted and codes[0] >= 500 else ReceiverDown(why)


@lru_cache(maxsize=1_000)
def _accepted(_message: uuid.UUID) -> set[str]:
    """The addresses that have accepted a message in this process. They do not get it again with the next try."""
    return set()


def _made(channel: Channel, message: Message) -> EmailMessage:
    try:
        return forms.mail(message, channel.sender, channel.to)
    except Exception as error:  # the parser of addresses raises many kinds of errors
        raise NotSetUp(
            f"the mail cannot be made ({type(error).__name__}): give the channel's `to` and `sender` valid addresses"
        ) from None


def _encrypt(server: smtplib.SMTP, context: ssl.SSLContext) -> bool:
    """Encrypt from here on, and return whether the server can."""
    server.ehlo()
    offered = server.has_extn("starttls")
    if offered:
        server.starttls(context=context)
    return offered
