"""Folders that only their owner can list."""

import os
import stat
from pathlib import Path

import pytest

from truelog.support.files import private_folder


@pytest.mark.parametrize("made_before", [False, True])
def test_a_private_folder_is_private_whatever_the_umask(tmp_path: Path, made_before: bool) -> None:
    folder = tmp_path / "outer" / "imports"
    before = os.umask(0o022)
    try:
        if made_before:
            folder.mkdir(parents=True)
        private_folder(folder)
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
