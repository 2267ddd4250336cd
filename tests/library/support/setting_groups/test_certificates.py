"""Clients get the path of a file that has certificates, or an error that names the setting."""

import os
from pathlib import Path

import pytest

from truelog.support.errors import NotSetUp
from truelog.support.setting_groups import certificates

PEM = "-----BEGIN CERTIFICATE-----\nMII…\n-----END CERTIFICATE-----\n"


def test_a_named_file_is_trusted_at_its_full_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ca.pem").write_text(PEM)
    monkeypatch.chdir(tmp_path)
    assert certificates.trusted(Path("ca.pem"), "TRUELOG_S3_CA_FILE") == str(tmp_path / "ca.pem")


@pytest.mark.parametrize(("content", "said"), [(None, "cannot be read"), (b"\x30\x82\xff", "no certificate in PEM")])
def test_a_file_without_certificates_is_named(tmp_path: Path, content: bytes | None, said: str) -> None:
    file = tmp_path / "ca.der"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(NotSetUp, match=f"TRUELOG_S3_CA_FILE: .*ca.der.*{said}"):
        certificates.trusted(file, "TRUELOG_S3_CA_FILE")


def test_without_a_file_each_client_keeps_its_default() -> None:
    assert certificates.named(None, "TRUELOG_S3_CA_FILE") is None


def test_by_default_the_system_says_whom_to_trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "system.pem").write_text(PEM)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "system.pem"))
    assert certificates.trusted(None, "TRUELOG_S3_CA_FILE") == str(tmp_path / "system.pem")


def test_a_system_without_certificates_asks_for_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "isfile", lambda _: False)
    with pytest.raises(NotSetUp, match="name one in TRUELOG_S3_CA_FILE"):
        certificates.trusted(None, "TRUELOG_S3_CA_FILE")
