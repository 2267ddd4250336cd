"""Commands print texts of producers and authors in one way, which takes nothing in them for markup or control."""

import ast
from pathlib import Path

from tests.house.tree import PROJECT, calls, imports, modules, plant

COMMANDS = "include/truelog/cli/*.py"
ONE_WAY = "include/truelog/cli/output.py"
PRINTS = {"print", "typer.echo", "typer.secho", "click.echo", "sys.stdout.write", "sys.stderr.write"}


def other_ways(root: Path) -> list[str]:
    """Modules of the command line that print without `truelog.cli.output`."""
    return [
        f"{name}:{line} prints past `say` and `Sheet` of truelog.cli.output"
        for name, tree in modules(root, COMMANDS)
        if name != ONE_WAY
        for line in _lines(tree)
    ]


def _lines(tree: ast.Module) -> list[int]:
    """The lines that print or import Rich, whose borders of tables contain no text."""
    rich = (line for line, name in imports(tree) if name.startswith("rich.") and not name.startswith("rich.box."))
    return sorted([*rich, *(call.lineno for call in calls(tree, *PRINTS))])


def test_commands_print_in_one_way() -> None:
    assert other_ways(PROJECT) == []


def test_other_ways_are_found(tmp_path: Path) -> None:
    text = "import typer\nfrom rich.console import Console\nfrom rich.box import SIMPLE\ntyper.echo('x')\nprint('x')\n"
    plant(tmp_path, {"include/truelog/cli/commands/planted.py": text})
    assert [each.partition(" ")[0].rpartition(":")[2] for each in other_ways(tmp_path)] == ["2", "4", "5"]
