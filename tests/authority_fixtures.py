"""Fixtures of certificates: of a private CA, and of a CA that has signed nothing. `tests/conftest.py` loads it."""

from pathlib import Path

import pytest

from tests.beds.authority import Authority


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def other_ca(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The certificate of a CA that has signed nothing."""
    return Authority(tmp_path_factory.mktemp("other"), "another-ca").file
