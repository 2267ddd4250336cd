"""A profile: what others see of a person. Each event is the whole profile, so the last one counts."""

from typing import Literal

from pydantic import Field

from truelog import Event, Topic

TOPIC = Topic(key="person_id", subject=("person_id",), partitions=4, retention="7 days", compacted=False)
PEOPLE = ["ann", "bob"]


class Profile(Event):
    """A person `changed` or `closed` a profile."""

    person_id: str = Field(min_length=1, max_length=128, examples=PEOPLE, description="The site's id for the person.")
    verb: Literal["changed", "closed"] = Field(description="What happened.")
    name: str | None = Field(None, max_length=256, examples=["Ann", "Bob"], description="The name that others see.")
    headline: str | None = Field(None, max_length=512, description="What the person does, in a sentence.")
    company: str | None = Field(None, max_length=256, description="Where the person works.")
    keywords: str | None = Field(None, max_length=2048, description="Skills and interests, separated by commas.")
    photo_url: str | None = Field(None, max_length=2048, description="URL of the photo.")
