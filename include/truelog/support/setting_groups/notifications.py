"""The settings of notifications: the channels, and how long the notifier tries (docs/notifications.md)."""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, PositiveFloat, SecretStr, model_validator
from pydantic_settings import BaseSettings


class Channel(BaseModel):
    """Where notifications go. Addresses and secrets are here alone: rules and the log have the name of the channel.

    url: of the webhook, of Alertmanager, or of the mail server, such as smtp://user:password@mail.example:587; of
        PagerDuty only if it is not its own.
    token: sent as a bearer token, if there is one. For PagerDuty, the routing key of an Events API v2 integration.
    to: the mail addresses, separated by commas; `sender` is the address of the sender.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["webhook", "alertmanager", "email", "pagerduty"]
    url: SecretStr = SecretStr("")
    token: SecretStr = SecretStr("")
    to: str = ""
    sender: str = "truelog@localhost"

    @model_validator(mode="after")
    def _require_address(self) -> Self:
        if self.kind == "pagerduty" and not self.token.get_secret_value():
            raise ValueError("a channel to PagerDuty needs the routing key as `token`")
        if self.kind != "pagerduty" and not self.url.get_secret_value():
            raise ValueError("a channel needs a `url`")
        return self


class NotificationSettings(BaseSettings):
    """Channels and limits. `truelog.support.settings` says where values come from."""

    notification_channels: Annotated[dict[str, Channel], BeforeValidator(lambda value: value or {})] = {}  # by name
    notification_answer_seconds: PositiveFloat = 10.0  # time limit for the answer of a channel
    notification_retry_seconds: PositiveFloat = 1.0  # before the second try; each further pause is twice as long
    notification_longest_retry_seconds: PositiveFloat = 300.0  # the longest pause between two tries
    notification_give_up_seconds: PositiveFloat = 3 * 86_400.0  # after which an undelivered notification is abandoned
    notification_keep_seconds: PositiveFloat = 90 * 86_400.0  # how long deliveries and incidents are kept
