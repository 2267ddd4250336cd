"""Kafka Connect's file of offsets says which connectors go on behind a snapshot."""

from pathlib import Path

from tests.library.capture.connect_offsets import WHOLE
from truelog.capture import offsets


def test_a_connector_goes_on_if_its_snapshot_has_ended(tmp_path: Path) -> None:
    (tmp_path / "offsets").write_bytes(WHOLE)
    assert offsets.with_snapshot(tmp_path / "offsets") == {"customers-1", "orders-2"}


def test_a_file_that_is_missing_or_was_cut_off_has_no_offsets(tmp_path: Path) -> None:
    assert offsets.with_snapshot(tmp_path / "offsets") == set()
    for size in range(len(WHOLE)):
        (tmp_path / "offsets").write_bytes(WHOLE[:size])
        assert offsets.with_snapshot(tmp_path / "offsets") == set()
