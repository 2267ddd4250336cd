"""The catalogue: every view that there is, found by looking into the folder of views.

A file that cannot be loaded, or that declares no `VIEW`, is refused with its reason: a view that vanishes is worse.
"""

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

from truelog.support.errors import BadDeclaration

if TYPE_CHECKING:
    from truelog.views.view import View

VIEWS = Path(__file__).parents[3] / "spark_apps" / "views"


def view_names(folder: Path = VIEWS) -> list[str]:
    """The views by file name, without loading any: cheap enough for a DAG file."""
    return sorted(path.stem for path in folder.glob("*.py") if path.stem != "__init__")


def table_name(view: str, version: int) -> str:
    """The name of a view's table, the same in each of the schemas `state`, `stage`, `batch` and `recon`."""
    return f"{view}_v{version}"


def load_view(name: str, folder: Path = VIEWS) -> "View":
    """The view declared in `<folder>/<name>.py`.

    Raises:
        BadDeclaration: there is no such file, or it cannot be loaded, or declares no view.
    """
    from truelog.views.view import View  # here: it brings PySpark, which those who only list views do without

    path = folder / f"{name}.py"
    if not path.exists():
        raise BadDeclaration(f"There is no view {name!r}; there are {', '.join(view_names(folder))}.")
    spec = importlib.util.spec_from_file_location(f"truelog_views.{name}", path)
    assert spec is not None  # noqa: S101
    assert spec.loader is not None  # noqa: S101
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever a file may raise when it is imported
        raise BadDeclaration(f"{path.name} cannot be loaded: {type(error).__name__}: {error}") from error
    view = getattr(module, "VIEW", None)
    if not isinstance(view, View):
        raise BadDeclaration(f"{path.name} declares no VIEW = View(…).")
    return view


def load_all_views(folder: Path = VIEWS) -> "dict[str, View]":
    return {name: load_view(name, folder) for name in view_names(folder)}
