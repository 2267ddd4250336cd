"""Commands in documents and messages are valid: console lines parse, and each `truelog …` is an existing command.

The real command-line parser checks the commands without running them.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from typer import Exit
from typer.core import TyperGroup
from typer.main import get_command

from tests.house.tree import PROJECT, plant, texts
from truelog.cli.main import app

CONSOLE = re.compile(r"```console\n(.*?)```", re.DOTALL)
TYPED = re.compile(r"(?m)^(?:\$ )?(?:\.venv/bin/)?truelog (.*)$")
NAMED = re.compile(r"`(?:\.venv/bin/)?truelog ([a-z][a-z-]*(?: [a-z][a-z-]*)*)")


def invalid_lines(root: Path) -> list[str]:
    """Lines in console blocks that the CLI rejects, each with its error message."""
    return [
        f"{name} shows `truelog {line}`: {why}"
        for name, text in texts(root, "*.md")
        for line in _typed(text)
        if (why := refusal(shlex.split(line, comments=True)))
    ]


def unknown_commands(root: Path) -> list[str]:
    """The commands in documents, docstrings and messages that do not exist."""
    return [
        f"{name} names `truelog {words}`, which is not a command"
        for name, text in texts(root, "*.md", "*.py", "*.yml")
        for words in NAMED.findall(text)
        if not _is_command(words.split())
    ]


def _typed(text: str) -> Iterator[str]:
    for block in CONSOLE.finditer(text):
        yield from TYPED.findall(block[1])


def refusal(words: Sequence[str]) -> str:
    """The command line's message about these words; empty if the words are valid."""
    command, rest = get_command(app), list(words)
    while isinstance(command, TyperGroup) and not (command.invoke_without_command and _only_options(rest)):
        found = command.commands.get(rest.pop(0)) if rest else None
        if found is None:
            return "no such command"
        command = found
    try:
        command.make_context(str(command.name), rest)
    except Exit:  # --help
        return ""
    except Exception as error:  # whatever the parser raises for invalid words
        return str(error)
    return ""


def _only_options(words: Sequence[str]) -> bool:
    return not words or words[0].startswith("-")


def _is_command(words: Sequence[str]) -> bool:
    """Whether the words begin with a command or are the name of a command group."""
    command = get_command(app)
    for word in words:
        if not isinstance(command, TyperGroup):
            return True
        found = command.commands.get(word)
        if found is None:
            return False
        command = found
    return True


def test_console_blocks_are_valid() -> None:
    typed = [line for _, text in texts(PROJECT, "README.md") for line in _typed(text)]
    assert len(typed) > 5
    assert invalid_lines(PROJECT) == []


def test_every_named_command_exists() -> None:
    assert unknown_commands(PROJECT) == []


GUIDE = """
```console
.venv/bin/truelog query page_views --limit 5  # fine
$ truelog application start archive
truelog query page_views --limit many
truelog query
truelog status --no-such-option
truelog archive dance
make up
```
Say ~truelog up~, ~truelog archive~, ~truelog dance --now~ or ~truelog archive accept-los~, and ~truelog archive …~.
""".replace("~", "`")


def test_planted_invalid_commands_are_found(tmp_path: Path) -> None:
    plant(tmp_path, {"docs/guide.md": GUIDE, "include/code.py": "CURE = 'run ~truelog dances~'\n".replace("~", "`")})
    refused = [problem.partition("`truelog ")[2].partition("`")[0] for problem in invalid_lines(tmp_path)]
    assert refused == [
        "query page_views --limit many",
        "query",
        "status --no-such-option",
        "archive dance",
    ]
    named = [problem.split("`")[1] for problem in unknown_commands(tmp_path)]
    assert named == ["truelog dance", "truelog archive accept-los", "truelog dances"]
