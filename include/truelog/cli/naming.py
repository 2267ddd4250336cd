"""View names on the command line. An unknown name is a usage error, not a failure."""

from collections.abc import Sequence
from typing import Annotated

import typer

from truelog.support.settings import Settings

Views = Annotated[list[str] | None, typer.Argument(help="The views. By default, all views.")]


def named(settings: Settings, views: Sequence[str] | None) -> list[str]:
    """Return the given view names after checking them.

    Raises:
        typer.BadParameter: there is no such view.
    """
    from truelog.views import catalogue

    known = catalogue.view_names(settings.views_folder)
    if unknown := sorted(set(views or ()) - set(known)):
        raise typer.BadParameter(f"{', '.join(unknown)}: choose from {', '.join(known)}")
    return list(views or ())
