"""Names of views on the command line: an unknown name is bad use, not a failure."""

from collections.abc import Sequence
from typing import Annotated

import typer

from truelog.support.settings import Settings

Views = Annotated[list[str] | None, typer.Argument(help="The views; all of them by default.")]


def named(settings: Settings, views: Sequence[str] | None) -> list[str]:
    """The given names, checked.

    Raises:
        typer.BadParameter: there is no such view.
    """
    from truelog.views import catalogue

    known = catalogue.view_names(settings.views_folder)
    if unknown := sorted(set(views or ()) - set(known)):
        raise typer.BadParameter(f"{', '.join(unknown)}: choose from {', '.join(known)}")
    return list(views or ())
