"""The environment matches the lock: no other package has overwritten PySpark's files."""

import base64
import hashlib
import subprocess
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

import truelog
from truelog.spark.java import packaged_java


def test_pyspark_client_is_absent() -> None:
    """pyspark-client installs into PySpark's folder, and the installation order would decide which files remain."""
    with pytest.raises(PackageNotFoundError):
        distribution("pyspark-client")


def test_the_installed_version_is_the_version_of_the_source() -> None:
    """Certificates contain the installed version, which `make install` updates."""
    assert distribution("truelog").version == truelog.__version__


def test_every_python_file_of_pyspark_is_original() -> None:
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


def test_the_packaged_java_starts_with_the_flag_that_spark_gives_it(tmp_path: Path) -> None:
    """This Java lacks the flag's module and would exit. The wrapper drops the flag and keeps all other arguments."""
    java = packaged_java(tmp_path) / "bin" / "java"
    words = [
        str(java),
        "--add-modules=jdk.incubator.vector",
        "-Dsaid=two words",
        "-XshowSettings:properties",
        "-version",
    ]
    started = subprocess.run(words, capture_output=True, text=True, check=False)
    assert started.returncode == 0, started.stderr
    assert "said = two words" in started.stderr


def _hash(algorithm: str, content: bytes) -> str:
    digest = hashlib.new(algorithm, content).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")
