"""Sends page views of people who are to be forgotten."""

import json

from tests.scenes.traffic import Traffic, parsed
from truelog.support.settings import Settings

NAME = "xanthippe"


class Leaving(Traffic):
    """The page views of the people who are to be forgotten."""

    def __init__(self, settings: Settings, name: str = NAME, *, people: int) -> None:
        super().__init__(settings)
        self.name, self.people = name, people

    def _event(self) -> bytes:
        event, person = parsed(super()._event()), f"{self.name}-{self.random.randrange(self.people)}"
        return b"not json" if event is None else json.dumps(event | {"visitor_id": person}).encode()
