"""The views in which people and commands look for rules and searches."""

from truelog.support.errors import BadDeclaration
from truelog.support.settings import Settings
from truelog.views import catalogue
from truelog.views.patterns import Patterns
from truelog.views.searches import Searches


def load(settings: Settings, name: str) -> Patterns:
    """The declaration of the view of matches with this name.

    Raises:
        BadDeclaration: there is no such view, or it is not a view of patterns.
    """
    view = catalogue.load_view(name, settings.views_folder)
    if not isinstance(view, Patterns):
        raise BadDeclaration(f"{name}.py declares no VIEW = Patterns(…).")
    return view


def load_searches(settings: Settings, name: str) -> Searches:
    """The declaration of the view of hits with this name.

    Raises:
        BadDeclaration: there is no such view, or it is not a view of searches.
    """
    view = catalogue.load_view(name, settings.views_folder)
    if not isinstance(view, Searches):
        raise BadDeclaration(f"{name}.py declares no VIEW = Searches(…).")
    return view
