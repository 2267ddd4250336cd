"""The settings of notifications: the channels, and how long the notifier tries (docs/notifications.md)."""

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, PositiveFloat, SecretStr
from pydantic_settings import BaseSettings


class Channel(BaseModel):
    """Where notifications go. Addresses and secrets are here alone: rules and the log have the name of the channel.

    url: of the webhook, of Alertmanager, or of the mail server, such as smtp://user:password@mail.example:587.
    token: sent as a bearer token, if there is one.
    to: the mail addresses, separated by commas; `sender` is the address of the sender.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["webhook", "alertmanager", "email"]
    url: SecretStr
    token: SecretStr = SecretStr("")
    to: str = ""
    sender: str = "truelog@localhost"


class NotificationSettings(BaseSettings):
    """Channels and limits. `truelog.support.settings` says where values come from."""

    notification_channels: Annotated[dict[str, Channel], BeforeValidator(lambda value: value or {})] = {}  # by name
    notification_answer_seconds: PositiveFloat = 10.0  # time limit for the answer of a channel
    notification_retry_seconds: PositiveFloat = 1.0  # before the second try; each further pause is twice as long
    notification_longest_retry_seconds: PositiveFloat = 300.0  # the longest pause between two tries
    notification_give_up_seconds: PositiveFloat = 3 * 86_400.0  # after which an undelivered notification is abandoned
    notification_keep_seconds: PositiveFloat = 90 * 86_400.0  # how long deliveries and incidents are kept
