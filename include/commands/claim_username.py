"""Claim a username for a person. Exactly one of any number of claimants gets it."""

from pydantic import Field

from truelog.commands import claims
from truelog.commands.declaration import Command, Decision, Fields, Refused, State


class ClaimUsername(Fields):
    """The username, and who claims it."""

    username: str = Field(pattern=r"^[a-z0-9_]{1,32}$", description="The username: a-z, 0-9 and _.")
    person_id: str = Field(min_length=1, max_length=128, description="The site's id for the person.")


def name_of(command: ClaimUsername) -> str:
    return f"username:{command.username}"


def decide(state: State, command: ClaimUsername) -> Decision:
    if state.get("holder") == command.person_id:
        return Refused(f"{command.person_id} already has the username {command.username}")
    if state.get("holder"):
        return Refused(f"the username {command.username} is taken")
    return [claims.claimed(name_of(command), command.person_id)]


COMMAND = Command(ClaimUsername, claims.FOLD, name_of, decide)
