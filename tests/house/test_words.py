"""What people are told to type is understood: each line of a console block parses, and each `truelog …` that a
document or a message names is a command. Words are parsed by the command line itself, and nothing is run.
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


def not_understood(root: Path) -> list[str]:
    """Lines of console blocks that the command line refuses, and why."""
    return [
        f"{name} tells to type `truelog {line}`: {why}"
        for name, text in texts(root, "README.md", "docs/*.md")
        for line in _typed(text)
        if (why := refusal(shlex.split(line, comments=True)))
    ]


def no_commands(root: Path) -> list[str]:
    """The commands that documents, docstrings and messages name and that there are not."""
    return [
        f"{name} names `truelog {words}`, which is no command"
        for name, text in texts(root, "*.md", "*.py", "*.yml")
        for words in NAMED.findall(text)
        if not _is_command(words.split())
    ]


def _typed(text: str) -> Iterator[str]:
    for block in CONSOLE.finditer(text):
        yield from TYPED.findall(block[1])


def refusal(words: Sequence[str]) -> str:
    """What the command line says against these words; empty where it understands them."""
    command, rest = get_command(app), list(words)
    while isinstance(command, TyperGroup) and not (command.invoke_without_command and _only_options(rest)):
        found = command.commands.get(rest.pop(0)) if rest else None
        if found is None:
            return "no such command"
        command = found
    try:
        command.make_context(str(command.name), rest)
    except Exit:  # it was asked for help
        return ""
    except Exception as error:  # whatever the parser has against it
        return str(error)
    return ""


def _only_options(words: Sequence[str]) -> bool:
    return not words or words[0].startswith("-")


def _is_command(words: Sequence[str]) -> bool:
    """Whether they begin with a command; a group of commands may be named by itself."""
    command = get_command(app)
    for word in words:
        if not isinstance(command, TyperGroup):
            return True
        found = command.commands.get(word)
        if found is None:
            return False
        command = found
    return True


def test_what_documents_tell_to_type_is_understood() -> None:
    typed = [line for _, text in texts(PROJECT, "README.md") for line in _typed(text)]
    assert len(typed) > 5
    assert not_understood(PROJECT) == []


def test_every_command_that_is_named_is_there() -> None:
    assert no_commands(PROJECT) == []


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


def test_what_is_not_understood_is_seen(tmp_path: Path) -> None:
    plant(tmp_path, {"docs/guide.md": GUIDE, "include/code.py": "CURE = 'run ~truelog dances~'\n".replace("~", "`")})
    refused = [problem.partition("`truelog ")[2].partition("`")[0] for problem in not_understood(tmp_path)]
    assert refused == [
        "query page_views --limit many",
        "query",
        "status --no-such-option",
        "archive dance",
    ]
    named = [problem.split("`")[1] for problem in no_commands(tmp_path)]
    assert named == ["truelog dance", "truelog archive accept-los", "truelog dances"]
