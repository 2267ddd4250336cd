"""The environment of a Spark process, and the file with the secret of a Spark cluster."""

import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import SecretStr

import runtime
from truelog.spark.submit import job_environment, properties_file
from truelog.support.errors import NotSetUp
from truelog.support.settings import PROJECT


@pytest.mark.parametrize("master", ["spark://spark:7077", "local-cluster[2,1,1024]"])
def test_a_cluster_without_a_secret_is_refused(tmp_path: Path, master: str) -> None:
    """Spark itself would end with a stack of Java."""
    settings = runtime.set_up(tmp_path).model_copy(update={"spark_master": master})
    with pytest.raises(NotSetUp, match="TRUELOG_SPARK_SECRET"):
        properties_file(settings)


@pytest.mark.parametrize("master", ["spark://spark:7077", "local[*]"])
def test_the_file_with_the_secret_is_private(tmp_path: Path, master: str) -> None:
    settings = runtime.set_up(tmp_path).model_copy(update={"spark_master": master, "spark_secret": SecretStr("known")})
    file = properties_file(settings)
    assert file.read_text() == "spark.authenticate.secret known\n"
    assert file.stat().st_mode & 0o777 == 0o600


def test_local_spark_needs_no_secret(tmp_path: Path) -> None:
    assert properties_file(runtime.set_up(tmp_path)).read_text().startswith("#")


def test_a_spark_process_finds_a_library_that_is_not_installed(tmp_path: Path) -> None:
    """As in an image, which has the locked packages and the library's files. `-S` ignores the installation's paths."""
    found = subprocess.run(
        [sys.executable, "-S", "-c", "import truelog; print(truelog.__file__)"],
        env=job_environment(runtime.set_up(tmp_path), tmp_path) | {"PYTHONSAFEPATH": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(found.stdout.strip()).is_relative_to(PROJECT / "include")
