"""The files of a tree as git lists them: tracked files, and new files that are not ignored."""

import ast
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

PROJECT = Path(__file__).parents[2]


def files(root: Path, *patterns: str) -> list[Path]:
    """The files whose path in the git tree matches a pattern; all files without a pattern. A `*` crosses folders."""
    listed = _git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *patterns)
    return sorted({root / name for name in listed.split("\0") if name and (root / name).is_file()})


def texts(root: Path, *patterns: str) -> Iterator[tuple[str, str]]:
    """The path and the text of each UTF-8 file."""
    for path in files(root, *patterns):
        try:
            yield str(path.relative_to(root)), path.read_text("utf-8")
        except UnicodeDecodeError:
            continue


def modules(root: Path, *patterns: str) -> Iterator[tuple[str, ast.Module]]:
    """The path and the syntax tree of each Python file; all of them without a pattern."""
    for name, text in texts(root, *(patterns or ("*.py",))):
        yield name, ast.parse(text, name)


def calls(tree: ast.AST, *names: str) -> Iterator[ast.Call]:
    """The calls of functions with these names, plain or as an attribute (`sleep`, `time.sleep`)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in names:
            yield node


def plant(root: Path, contents: Mapping[str, str]) -> Path:
    """Make a git tree with these files, in which a rule must find planted faults."""
    for name, text in contents.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    _git(root, "init", "--quiet")
    return root


def _git(root: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", root, *words], capture_output=True, text=True, check=True).stdout
