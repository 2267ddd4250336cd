"""A view with two versions that the pages show. Readers see the first one."""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.library.versions.two_versions import TwoVersions, deploy_two
from truelog.storage.database import connect
from truelog.support.settings import Settings

_FILE = '''"""A view whose version was raised."""

from truelog import Sum, View

VIEW = View(
    reads=("page_view",),
    transform=lambda page_view: page_view,
    key=("url",),
    measures={"views": Sum()},
    version=2,
)
'''


@contextmanager
def shown_versions(settings: Settings) -> Iterator[TwoVersions]:
    with connect(settings, autocommit=True) as connection:
        made = deploy_two(settings, connection)
        file = settings.views_folder / f"{made.name}.py"
        file.write_text(_FILE)
        try:
            yield made
        finally:
            file.unlink()
            made.forget()
