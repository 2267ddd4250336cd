"""Events of people's profiles, for the examples of several views."""

from tests.views.examples import Sent, at, sent


def named(person: str, name: str, time: str = "09:00:00", verb: str = "changed") -> Sent:
    fields = {"event_id": f"{person} {time}", "photo_url": f"https://photos.example/{name}"}
    return sent("profile", person_id=person, verb=verb, name=name, occurred_at=at(time), **fields)
