"""The exact range of a micro-batch, from the offset log that Spark writes before the batch runs.

The records of a batch do not show where it ends: a range may hold only transaction markers and compacted records, and
its positions must still advance. Spark's checkpoint is scratch to Truelog, but during one run of an application only
its offset log has the end of each partition, even without records.
"""

import shutil
import uuid
from pathlib import Path

from truelog.log.positions import Positions


def fresh_checkpoint(folder: Path) -> Path:
    """A checkpoint in `folder` for this run only; the checkpoints of earlier runs are deleted."""
    shutil.rmtree(folder, ignore_errors=True)
    checkpoint = folder / uuid.uuid4().hex
    checkpoint.mkdir(parents=True)
    return checkpoint


def batch_range(checkpoint: Path, batch_id: int, begin: Positions) -> tuple[Positions, Positions]:
    """The range [start, end) of a micro-batch; `begin` is the start of this run's batch 0."""
    start = _ends(checkpoint, batch_id - 1, begin) if batch_id else begin
    return start, _ends(checkpoint, batch_id, begin)


def _ends(checkpoint: Path, batch_id: int, begin: Positions) -> Positions:
    """The end offsets of a batch. The file's lines: version, metadata, and the offsets of the only source."""
    lines = (checkpoint / "offsets" / str(batch_id)).read_text().splitlines()
    if lines[0] != "v1" or len(lines) != 3:
        raise RuntimeError(f"offset log of batch {batch_id}: {lines[0]}, {len(lines)} lines is an unknown format")
    return Positions.from_json(lines[2], begin.ids)
