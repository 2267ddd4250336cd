"""What a view's file declares, for reports that are made often. A file is loaded again if it has changed."""

import ast
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from truelog.control.view_versions import StoredVersion
from truelog.schema import declaration_files
from truelog.support.errors import BadDeclaration
from truelog.support.settings import Settings
from truelog.views import catalogue
from truelog.views.view import View


def declared_view(settings: Settings, name: str) -> tuple[View | None, str]:
    """The declaration, or None and the reason if the file cannot be loaded."""
    path = settings.views_folder / f"{name}.py"
    with suppress(OSError):
        return _loaded(path, path.stat().st_ctime_ns)
    return _loaded(path, 0)


def stored_view(settings: Settings, stored: StoredVersion) -> View | None:
    """What the stored file of a version declares, or None if that file is missing or cannot be loaded."""
    return None if stored.source is None else _loaded(stored.write(settings) / f"{stored.view}.py", 0)[0]


def about_view(settings: Settings, name: str) -> str:
    """The text at the begin of the view's file. Empty if the file has none or cannot be read."""
    try:
        return ast.get_docstring(ast.parse(declaration_files.content(settings.views_folder / f"{name}.py"))) or ""
    except (BadDeclaration, ValueError, SyntaxError, RecursionError, MemoryError):
        return ""


@lru_cache(maxsize=1_000)
def _loaded(path: Path, changed_at: int) -> tuple[View | None, str]:
    """`changed_at` is part of the cache's key."""
    try:
        return catalogue.load_view(path.stem, path.parent), ""
    except BadDeclaration as broken:
        return None, str(broken)
