"""The doctor finds each planted fault of this machine."""

from pathlib import Path

import pytest

from truelog.doctor.machine import MACHINE
from truelog.doctor.result import Outcome, Result
from truelog.doctor.transport import is_this_machine
from truelog.support.settings import Settings


def examined(settings: Settings, **changes: object) -> dict[str, Result]:
    return {each.check: each for each in MACHINE.examine(settings.model_copy(update=changes))}


def test_this_machine_is_fit_for_the_tests(settings: Settings) -> None:
    found = examined(settings, alert_disk_share=0.0)
    assert {check: each.found for check, each in found.items() if each.outcome is Outcome.FAILED} == {}
    assert found.keys() == {"Java", "jars", "disk", "memory", "secrets"}


def test_a_full_disk_missing_jars_and_readable_secrets_are_found(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "settings.env").write_text("")
    (tmp_path / "settings.env").chmod(0o644)
    assert examined(settings, home=tmp_path / "not" / "yet")["disk"].outcome is not Outcome.FAILED
    found = examined(settings, alert_disk_share=1.0, jars_folder=tmp_path, home=tmp_path)
    assert found["disk"].outcome is Outcome.WARNING
    assert (found["jars"].outcome, found["jars"].cure) == (Outcome.FAILED, "Run `make install`.")
    assert (found["secrets"].outcome, "chmod 600" in found["secrets"].cure) == (Outcome.FAILED, True)


@pytest.mark.parametrize(
    ("host", "own"),
    [
        ("127.0.0.1", True),
        ("[::1]", True),
        ("localhost", True),
        ("/var/run/postgresql", True),
        ("10.0.0.1", False),
        ("localhost.example", False),
        ("", False),
    ],
)
def test_only_this_machine_needs_no_encryption(host: str, own: bool) -> None:
    assert is_this_machine(host) is own
