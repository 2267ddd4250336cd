"""The scenes' fixtures, for the soak."""

from tests.scenes.conftest import _no_application_is_left, world

__all__ = ["_no_application_is_left", "world"]
