"""Java gets the certificates of the object store's CA in its own format."""

from pathlib import Path

from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import load_pem_x509_certificates

from tests.beds.authority import Authority
from truelog.spark import trust_store
from truelog.support.settings import Settings


def secured(settings: Settings, ca: Path) -> Settings:
    return settings.model_copy(update={"s3_endpoint": "https://s3.example", "s3_ca_file": ca})


def test_the_file_has_every_certificate_in_plain(settings: Settings, tmp_path: Path) -> None:
    """Without encryption, Java needs no password."""
    both = tmp_path / "both.pem"
    both.write_bytes(b"".join(Authority(tmp_path, name).file.read_bytes() for name in ("one", "other")))
    [store, kind] = trust_store.java_options(secured(settings, both))
    assert kind == "-Djavax.net.ssl.trustStoreType=PKCS12"
    written = Path(store.partition("=")[2]).read_bytes()
    for each in load_pem_x509_certificates(both.read_bytes()):
        assert each.public_bytes(Encoding.DER) in written


def test_other_certificates_have_another_file(settings: Settings, tmp_path: Path) -> None:
    found = [trust_store.java_options(secured(settings, Authority(tmp_path, name).file)) for name in ("one", "other")]
    assert found[0] != found[1]
    assert trust_store.java_options(secured(settings, tmp_path / "one.pem")) == found[0]
