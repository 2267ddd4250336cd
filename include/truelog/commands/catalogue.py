"""The catalogue of commands: one command for each file in `include/commands/`, named after its file."""

import inspect
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from truelog.commands import claims
from truelog.commands.declaration import LONGEST_KEY, Command, Fold, no_claims
from truelog.schema import declaration_files
from truelog.schema.event import EventTypes
from truelog.schema.loading import declaration_module
from truelog.support.errors import BadDeclaration

COMMANDS = Path(__file__).parents[2] / "commands"

log = logging.getLogger("truelog.commands")


@dataclass(frozen=True)
class Catalogue:
    """The commands by name, and the reason for each file that declares no command that can be used."""

    commands: Mapping[str, Command]
    refused: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _ = self.codes  # of the files that are loaded now, not of later ones

    @cached_property
    def folds(self) -> Mapping[str, Fold]:
        """The fold of each event type. That of claims is always among them."""
        return {command.fold.event: command.fold for command in self.commands.values()} | {claims.CLAIM: claims.FOLD}

    @cached_property
    def codes(self) -> Mapping[str, str]:
        """The hash of the code of each fold, by event type."""
        return {event: code_of(fold) for event, fold in self.folds.items()}


def load(folder: Path = COMMANDS) -> Catalogue:
    """All commands of the folder. A file that cannot be used stops no other command, and is logged."""
    commands, refused = dict[str, Command](), declaration_files.misnamed(folder)
    folds = {claims.CLAIM: claims.FOLD}
    for name in declaration_files.declared_names(folder):
        try:
            command = _load(folder / f"{name}.py")
            if folds.setdefault(command.fold.event, command.fold) != command.fold:
                raise BadDeclaration(
                    f"{name}: another command has another fold of {command.fold.event}. Let both import the same fold."
                )
            commands[name] = command
        except BadDeclaration as bad:
            refused[name] = str(bad)
            log.warning("the command %s is refused: %s", name, bad)
    return Catalogue(commands, refused)


def usable_folds(catalogue: Catalogue, types: EventTypes) -> dict[str, Fold]:
    """The folds of the catalogue whose event types have states, by event type."""
    return {event: fold for event, fold in catalogue.folds.items() if problem(types, event) is None}


def refusals(catalogue: Catalogue, types: EventTypes) -> dict[str, str]:
    """The reason for each command that cannot be decided: its file, or an event type that it needs."""
    problems = {event: reason for event in catalogue.folds if (reason := problem(types, event)) is not None}
    refused = dict(catalogue.refused)
    for name, command in catalogue.commands.items():
        needed = {command.fold.event} if command.claims is no_claims else {command.fold.event, claims.CLAIM}
        if reasons := [problems[event] for event in sorted(needed & problems.keys())]:
            refused[name] = "; ".join(reasons)
    return refused


def problem(types: EventTypes, event: str) -> str | None:
    """Why the keys of this event type have no states, or None."""
    event_type = types.get(event)
    if event_type is None:
        return f"{event} is not a registered event type. Add its file to include/events/, and run `truelog up`."
    longest = [field.longest for field in event_type.fields if field.name == event_type.topic.key]
    if not longest or longest[0] is None or longest[0] > LONGEST_KEY:
        return f"{event}: commands need a key of at most {LONGEST_KEY} characters. Declare one with max_length."
    return None


def code_of(fold: Fold) -> str:
    """A hash of the file that contains the fold."""
    file = inspect.getsourcefile(fold.apply)
    if file is None:
        raise BadDeclaration(f"the fold of {fold.event} is in no file")
    return declaration_files.digest(Path(file))


def document(name: str, command: Command) -> dict[str, object]:
    """What a client must know of a command, as JSON data."""
    return {
        "command": name,
        "about": (command.decide.__globals__.get("__doc__") or "").strip(),
        "event": command.fold.event,
        "role": command.role.value,
        "most": command.most,
        "fields": command.fields.model_json_schema(),
    }


def _load(path: Path) -> Command:
    module = declaration_module.load(path, "truelog_commands", "truelog.commands.declaration")
    command = getattr(module, "COMMAND", None)
    if not isinstance(command, Command):
        raise BadDeclaration(f"{path.name} declares no COMMAND = Command(…).")
    return command
