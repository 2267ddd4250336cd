"""The scenes' fixtures, for the soak and the cluster."""

from tests.scenes.conftest import _no_application_is_left, one_view, only_page_views, world

__all__ = ["_no_application_is_left", "one_view", "only_page_views", "world"]
