"""Where the notifier begins to read a view."""

from datetime import timedelta
from pathlib import Path

from tests.library.notifications.found_rows import FoundRows
from truelog.notifications import source
from truelog.support.settings import Settings

FILE = """from truelog import Sum, View
VIEW = View(reads=("click",), transform=lambda click: click, key=("time",), measures={{"n": Sum()}}, keep="{}")
"""


def test_the_age_of_rows_follows_the_file(postgresql: Settings, carts: FoundRows, tmp_path: Path) -> None:
    """The notifier runs for weeks."""
    settings, found = postgresql.model_copy(update={"views_folder": tmp_path}), []
    for keep in ("1 day", "2 days"):
        (tmp_path / "cart.py").write_text(FILE.format(keep))
        opened = source.open_source(settings, carts.connection, "cart")
        found.append(opened and opened.keep)
    assert found == [timedelta(days=1), timedelta(days=2)]
