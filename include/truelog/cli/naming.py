"""Views named on the command line: a name that is none is bad use, not a failure."""

from collections.abc import Sequence
from typing import Annotated

import typer

from truelog.support.settings import Settings

Views = Annotated[list[str] | None, typer.Argument(help="Which views; all of them by default.")]


def named(settings: Settings, views: Sequence[str] | None) -> list[str]:
    """The views as they were named.

    Raises:
        typer.BadParameter: there is no such view.
    """
    from truelog.views import catalogue

    known = catalogue.view_names(settings.views_folder)
    if unknown := sorted(set(views or ()) - set(known)):
        raise typer.BadParameter(f"{', '.join(unknown)}: choose from {', '.join(known)}")
    return list(views or ())
