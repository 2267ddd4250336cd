"""A notification rule sends notifications of matches, hits or rows to a channel. A record is a rule or its end."""

from typing import Literal

from pydantic import Field

from truelog import Event, Required, Topic

# One partition gives all records one order. The topic is internal, because only a command checks a rule.
TOPIC = Topic(key="notification", subject=(), partitions=1, retention="7 days", internal=True)
_SET = ("kind", "subject", "channel", "template")
REQUIRED = [
    *(Required(field, when="verb", is_in=("set",)) for field in _SET),
    Required("window_seconds", when="kind", is_in=("match", "hit")),
    Required("condition", when="kind", is_in=("row",)),
]


class NotificationRule(Event):
    """A person `set` or `retired` a notification rule."""

    notification: str = Field(min_length=1, max_length=63, examples=["fraud", "outages"], description="Its name.")
    verb: Literal["set", "retired"] = Field(description="What happened.")
    kind: Literal["match", "hit", "row"] | None = Field(None, description="What it is about; NULL if it is retired.")
    subject: str | None = Field(
        None, max_length=63, examples=["too_many_failures"], description="The pattern rule, the search, or the view."
    )
    channel: str | None = Field(None, max_length=63, examples=["on_call"], description="The name of the channel.")
    group_by: str | None = Field(
        None, max_length=200, examples=["entity_id"], description="Columns whose equal values are one incident."
    )
    window_seconds: int | None = Field(
        None, ge=1, le=604_800, examples=[3600], description="How long an incident takes in further matches or hits."
    )
    condition: str | None = Field(
        None, max_length=2_000, examples=["quantity > 100"], description="Which rows of a view it is about."
    )
    until: str | None = Field(
        None, max_length=2_000, examples=["quantity < 90"], description="When a row of an incident is over."
    )
    for_seconds: int | None = Field(None, ge=1, le=604_800, examples=[300], description="How long a row must fit.")
    template: str | None = Field(
        None, max_length=1_000, examples=["$rule: $entity_id"], description="The text, with columns such as $rule."
    )
    decided_by: str | None = Field(None, max_length=256, description="Who decided.")
