"""The environment is the locked one: nothing has written over PySpark's files."""

import base64
import hashlib
from importlib.metadata import PackageNotFoundError, distribution

import pytest


def test_pyspark_client_is_absent() -> None:
    """It installs into PySpark's own folder; which of the two would win is chance."""
    with pytest.raises(PackageNotFoundError):
        distribution("pyspark-client")


def test_every_python_file_of_pyspark_is_the_one_it_came_with() -> None:
    recorded = [
        (file, file.hash)
        for file in distribution("pyspark").files or []
        if file.suffix == ".py" and file.hash is not None
    ]
    assert len(recorded) > 400
    changed = [
        str(file)
        for file, recorded_hash in recorded
        if _hash(recorded_hash.mode, file.read_binary()) != recorded_hash.value
    ]
    assert changed == []


def _hash(algorithm: str, content: bytes) -> str:
    digest = hashlib.new(algorithm, content).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")
