"""The exact range of a micro-batch, as Spark itself wrote it down before the batch ran.

The records of a batch do not say where it ends: a range may hold nothing but transaction markers and compacted
records, and its positions must advance all the same. Spark's checkpoint is scratch to Truelog, but within one run of
an application its offset log is the one place that names the end of each partition, record or no record.
"""

import shutil
import uuid
from pathlib import Path

from truelog.log.positions import Positions


def fresh_checkpoint(folder: Path) -> Path:
    """A checkpoint of this run alone in `folder`; those of earlier runs are scratch and go."""
    shutil.rmtree(folder, ignore_errors=True)
    checkpoint = folder / uuid.uuid4().hex
    checkpoint.mkdir(parents=True)
    return checkpoint


def batch_range(checkpoint: Path, batch_id: int, begin: Positions) -> tuple[Positions, Positions]:
    """[start, end) of a micro-batch; `begin` is where this run was told to start: the start of batch 0."""
    start = _ends(checkpoint, batch_id - 1, begin) if batch_id else begin
    return start, _ends(checkpoint, batch_id, begin)


def _ends(checkpoint: Path, batch_id: int, begin: Positions) -> Positions:
    """Line 1 is a version, line 2 metadata, line 3 the offsets of the only source."""
    lines = (checkpoint / "offsets" / str(batch_id)).read_text().splitlines()
    if lines[0] != "v1" or len(lines) != 3:
        raise RuntimeError(f"offset log of batch {batch_id}: {lines[0]}, {len(lines)} lines is no form known here")
    return Positions.from_json(lines[2], begin.ids)
