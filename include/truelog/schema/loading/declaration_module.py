"""The module of a declaration file: the only place where a process loads one. A trial comes first."""

import sys
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType

from truelog.schema import declaration_files
from truelog.schema.loading import trial
from truelog.support.errors import BadDeclaration

_CONTENT = "__content__"  # the attribute of a module with the bytes that it was loaded from


def load(path: Path, package: str, *modules: str) -> ModuleType:
    """A new module of the file, which is not among the modules of Python, so that executors get its functions by value.

    `modules` are what such files import, so that one process imports it once for all trials of a folder.

    Raises:
        BadDeclaration: the file cannot be read or loaded, or does more than declare something.
    """
    module = _module(path, package, declaration_files.content(path))
    _run(module, path.name, package, modules)
    return module


def load_once(path: Path, package: str, *modules: str) -> ModuleType:
    """As `load`, but among the modules of Python, and the same module for the same content, so that its class stays.

    Raises:
        BadDeclaration: the file cannot be read or loaded, or does more than declare something.
    """
    content = declaration_files.content(path)
    known = sys.modules.get(name := f"{package}.{path.stem}")
    if known is not None and (known.__file__, getattr(known, _CONTENT, None)) == (str(path), content):
        return known
    module = sys.modules[name] = _module(path, package, content)
    try:
        _run(module, str(path), package, modules)
    except BadDeclaration:
        sys.modules.pop(name, None)
        raise
    return module


def _module(path: Path, package: str, content: bytes) -> ModuleType:
    module = ModuleType(f"{package}.{path.stem}")
    module.__dict__.update({"__file__": str(path), _CONTENT: content})
    return module


def _run(module: ModuleType, shown: str, package: str, modules: tuple[str, ...]) -> None:
    """Run the module's content after its trial. Python's own cache of compiled files would overlook a quick change."""
    path, content = Path(str(module.__file__)), module.__dict__[_CONTENT]
    if wrong := trial.misdeed(path, content, package, modules):
        raise BadDeclaration(f"{shown} cannot be loaded: {wrong}")
    try:
        with redirect_stdout(sys.stderr):  # the output of a command is for its answer
            exec(compile(content, path, "exec", dont_inherit=True), module.__dict__)  # noqa: S102
    except (Exception, SystemExit) as error:  # a file may raise anything when it is imported
        raise BadDeclaration(f"{shown} cannot be loaded: {type(error).__name__}: {error}") from error
