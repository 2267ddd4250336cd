"""Some of the platform's views, for tests that need few: each additional view makes every start slower."""

import shutil
from pathlib import Path

from truelog.views.catalogue import VIEWS


def copy_views(folder: Path, *views: str) -> Path:
    """Copy the files of these views into the folder, and return it."""
    for view in views:
        shutil.copy(VIEWS / f"{view}.py", folder)
    return folder
