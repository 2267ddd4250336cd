"""The catalogue of views: one view for each file in the views folder.

A file that cannot be loaded or declares no `VIEW` causes an error, because a silently missing view would be worse.
`truelog.schema.declaration_files` says which files are declarations.
"""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from truelog.schema import declaration_files
from truelog.schema.loading import declaration_module
from truelog.support.errors import BadDeclaration

if TYPE_CHECKING:
    from truelog.views.view import View

VIEWS = Path(__file__).parents[3] / "spark_apps" / "views"


def view_names(folder: Path = VIEWS) -> list[str]:
    """The names of all views, read without loading the files, which is cheap enough for a DAG file."""
    return declaration_files.declared_names(folder)


def table_name(view: str, version: int, side: str = "") -> str:
    """The name of a view's table, or of a side table, which is the same in each schema of tables."""
    return f"{view}_v{version}_{side}" if side else f"{view}_v{version}"


def load_view(name: str, folder: Path = VIEWS) -> "View":
    """The view declared in `<folder>/<name>.py`.

    Raises:
        BadDeclaration: the file does not exist, cannot be loaded, or declares no view.
    """
    from truelog.views.view import View  # imports PySpark, which `view_names` does not need

    path = folder / f"{name}.py"
    if name not in view_names(folder):
        raise BadDeclaration(f"There is no view {name!r}; the views are {', '.join(view_names(folder))}.")
    module = declaration_module.load(path, "truelog_views", "truelog.views.view")
    view = getattr(module, "VIEW", None)
    if not isinstance(view, View):
        raise BadDeclaration(f"{path.name} declares no VIEW = View(…).")
    return view if view.about else replace(view, about=_first_paragraph(module.__doc__ or ""))


def _first_paragraph(text: str) -> str:
    return " ".join(text.strip().partition("\n\n")[0].split())


def load_all_views(folder: Path = VIEWS) -> "dict[str, View]":
    return {name: load_view(name, folder) for name in view_names(folder)}
