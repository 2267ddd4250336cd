"""The files in a tree as git lists them: tracked files, and new files that are not ignored."""

import ast
import subprocess
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

PROJECT = Path(__file__).parents[2]


def files(root: Path, *patterns: str) -> list[Path]:
    """The files whose paths match a pattern, or all files if there are no patterns. A `*` also matches slashes."""
    listed = git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *patterns)
    return sorted({root / name for name in listed.split("\0") if name and (root / name).is_file()})


def texts(root: Path, *patterns: str) -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each matching UTF-8 file."""
    for path in files(root, *patterns):
        try:
            yield str(path.relative_to(root)), path.read_text("utf-8")
        except UnicodeDecodeError:
            continue


def modules(root: Path, *patterns: str) -> Iterator[tuple[str, ast.Module]]:
    """Yield the path and the syntax tree of each matching file, or of every Python file if there are no patterns."""
    for name, text in texts(root, *(patterns or ("*.py",))):
        yield name, ast.parse(text, name)


def imports(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and the full name of each import, which is a module or a name of one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


def calls(tree: ast.AST, *names: str) -> Iterator[ast.Call]:
    """Yield the calls to functions with these names, which may be plain (`sleep`) or qualified (`time.sleep`)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in names:
            yield node


def unpermitted(found: Mapping[str, str], allowed: Collection[str], no_longer: str) -> list[str]:
    """The problems of modules without permission, and unused permissions.

    `found` has the rest of the message by module, from the line number on.
    """
    problems = [f"{name}:{problem}" for name, problem in found.items() if name not in allowed]
    return problems + [f"{name} is on the list, but {no_longer}" for name in allowed if name not in found]


def plant(root: Path, contents: Mapping[str, str]) -> Path:
    """Create a git tree with these files, so that a test can check that a rule finds planted faults."""
    for name, text in contents.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    git(root, "init", "--quiet")
    return root


def git(root: Path, *words: str, check: bool = True) -> str:
    return subprocess.run(["git", "-C", root, *words], capture_output=True, text=True, check=check).stdout
