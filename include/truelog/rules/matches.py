"""The view of matches, in which people and commands look for rules."""

from truelog.support.errors import BadDeclaration
from truelog.support.settings import Settings
from truelog.views import catalogue
from truelog.views.patterns import Patterns


def load(settings: Settings, name: str) -> Patterns:
    """The declaration of the view with this name.

    Raises:
        BadDeclaration: there is no such view, or it is not a view of patterns.
    """
    view = catalogue.load_view(name, settings.views_folder)
    if not isinstance(view, Patterns):
        raise BadDeclaration(f"{name}.py declares no VIEW = Patterns(…).")
    return view
