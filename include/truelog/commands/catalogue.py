"""The catalogue of commands: one command for each file in `include/commands/`, named after its file."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType

from truelog.commands import claims
from truelog.commands.declaration import Command, Fold
from truelog.schema import declaration_files
from truelog.support.errors import BadDeclaration

COMMANDS = Path(__file__).parents[2] / "commands"


@dataclass(frozen=True)
class Catalogue:
    """The commands, by name."""

    commands: Mapping[str, Command]

    def __post_init__(self) -> None:
        _ = self.codes  # of the files that are loaded now, not of later ones
        for name, command in self.commands.items():
            if self.folds[command.fold.event] != command.fold:
                raise BadDeclaration(
                    f"{name}: another command has another fold of {command.fold.event}. Let both import the same fold."
                )

    @cached_property
    def folds(self) -> Mapping[str, Fold]:
        """The fold of each event type. That of claims is always among them."""
        return {command.fold.event: command.fold for command in self.commands.values()} | {claims.CLAIM: claims.FOLD}

    @cached_property
    def codes(self) -> Mapping[str, str]:
        """The hash of the code of each fold, by event type."""
        return {event: code_of(fold) for event, fold in self.folds.items()}


def load(folder: Path = COMMANDS) -> Catalogue:
    """All commands of the folder.

    Raises:
        BadDeclaration: a file cannot be loaded or declares no command, or two commands have different folds of a type.
    """
    return Catalogue({name: _load(folder / f"{name}.py") for name in declaration_files.declared_names(folder)})


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
        "fields": command.fields.model_json_schema(),
    }


def _load(path: Path) -> Command:
    content, module = declaration_files.content(path), ModuleType(f"truelog_commands.{path.stem}")
    module.__file__ = str(path)
    try:
        exec(compile(content, str(path), "exec", dont_inherit=True), module.__dict__)  # noqa: S102
    except (Exception, SystemExit) as error:  # a file may raise anything when it is imported
        raise BadDeclaration(f"{path.name} cannot be loaded: {type(error).__name__}: {error}") from error
    command = getattr(module, "COMMAND", None)
    if not isinstance(command, Command):
        raise BadDeclaration(f"{path.name} declares no COMMAND = Command(…).")
    return command
