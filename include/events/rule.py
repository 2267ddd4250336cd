"""A rule that describes a sequence of events. Each record is the whole rule, or says that it is retired."""

from typing import Literal

from pydantic import Field

from truelog import Event, Topic

# One partition gives all records one order. Topics of rules are internal, because only a command checks a rule.
TOPIC = Topic(key="rule", subject=(), partitions=1, retention="7 days", internal=True)
EXAMPLES = [
    '{"rule": "rising", "by": "symbol", "pattern": "low high+", "within": "1 minute", "steps": {"low": '
    '{"on": "price"}, "high": {"on": "price", "where": "price > prev(price)"}}, "show": {"top": "high.price"}}',
    '{"rule": "rising", "by": "symbol", "pattern": "low", "within": "1 minute", "steps": {"low": {"on": "price"}}, '
    '"absent": {"on": "price", "where": "price > low.price"}, "late_after": "5 seconds"}',
    '{"rule": "a", "by": "machine", "pattern": "hot .. cold?", "within": "1 hour", "after": "next", "steps": {"hot": '
    '{"on": "reading", "where": "measured > 0"}, "cold": {"on": "reading", "where": "measured <= 0"}}}',
]


class Rule(Event):
    """A person `set` or `retired` a rule."""

    rule: str = Field(min_length=1, max_length=63, examples=["rising", "a"], description="The rule's name.")
    verb: Literal["set", "retired"] = Field(description="What happened.")
    definition: str | None = Field(
        None, max_length=16_384, examples=EXAMPLES, description="The rule as JSON; NULL if it is retired."
    )
    begins: str = Field(
        max_length=65_536,
        examples=["{}", '{"price": {"0": 1000000, "1": 1000000, "2": 1000000}}'],
        description="End offsets, read before the record was written, as text: {topic: {partition: offset}}.",
    )
    decided_by: str | None = Field(None, max_length=256, description="Who decided.")
