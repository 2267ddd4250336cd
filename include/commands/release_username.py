"""Release a username, so that another person can claim it."""

from pydantic import Field

from truelog.commands import claims
from truelog.commands.declaration import Command, Decision, Fields, Refused, State


class ReleaseUsername(Fields):
    """The username, and who releases it."""

    username: str = Field(pattern=r"^[a-z0-9_]{1,32}$", description="The username: a-z, 0-9 and _.")
    person_id: str = Field(min_length=1, max_length=128, description="The site's id for the person.")


def name_of(command: ReleaseUsername) -> str:
    return f"username:{command.username}"


def decide(state: State, command: ReleaseUsername) -> Decision:
    if state.get("holder") != command.person_id:
        return Refused(f"{command.person_id} does not have the username {command.username}")
    return [claims.released(name_of(command), command.person_id)]


COMMAND = Command(ReleaseUsername, claims.FOLD, name_of, decide)
