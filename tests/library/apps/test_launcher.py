"""The last error of an application, from the end of its log."""

from pathlib import Path

import pytest

from truelog.apps import launcher
from truelog.support.settings import Settings


@pytest.mark.parametrize(
    ("log", "error"),
    [
        (
            "starting\nValueError: first\n  at Main.java\ntruelog.errors.StoreDown: S3 refused\nexit\n",
            "truelog.errors.StoreDown: S3 refused",
        ),
        ("org.apache.spark.SparkException: Job aborted\n", "org.apache.spark.SparkException: Job aborted"),
        ("one\n\nKilled\n\n", "Killed"),
        ("", ""),
        ("ValueError: " + "x" * 900, "ValueError: " + "x" * 488),
    ],
)
def test_the_last_error_is_the_last_line_that_names_one(tmp_path: Path, log: str, error: str) -> None:
    settings = Settings().model_copy(update={"home": tmp_path})
    path = launcher.log_path(settings, "stream")
    path.parent.mkdir()
    path.write_text(log)
    assert launcher.last_error(settings, "stream") == error


def test_an_application_without_a_log_has_no_error(tmp_path: Path) -> None:
    assert launcher.last_error(Settings().model_copy(update={"home": tmp_path}), "stream") == ""
