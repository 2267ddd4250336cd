"""The scenes' fixtures, for the soak."""

from tests.scenes.conftest import _no_application_is_left, archives, batch, each_event, world

__all__ = ["_no_application_is_left", "archives", "batch", "each_event", "world"]
