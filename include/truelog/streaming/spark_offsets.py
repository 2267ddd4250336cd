"""The exact range of a micro-batch, from the offset log that Spark writes before the batch runs.

A batch's records do not show where the batch ends: a range may contain only transaction markers and compacted records,
but the positions must still advance. Truelog treats the Spark checkpoint as scratch data. During one run of an
application, however, only the checkpoint's offset log has each partition's end, even if the range contains no records.
"""

import atexit
import os
import shutil
import tempfile
import uuid
from pathlib import Path

from truelog.log.positions import Positions
from truelog.support.files import private_folder
from truelog.support.setting_groups.namespace import Names

_MEMORY = Path("/dev/shm")  # noqa: S108 — not a fixed file: `mkdtemp` makes a private folder in it


def fresh_checkpoint(folder: Path) -> Path:
    """Create a checkpoint in `folder` for this run only, and delete the checkpoints of earlier runs."""
    checkpoint = emptied(folder) / uuid.uuid4().hex
    checkpoint.mkdir(parents=True)
    return checkpoint


def emptied(folder: Path) -> Path:
    """The folder, without what earlier runs have left in it.

    Where the machine has a file system in memory, `folder` is a link to it: Spark writes two small files for each
    batch, and waits for the disk.
    """
    shutil.rmtree(folder.resolve(), ignore_errors=True)
    folder.unlink(missing_ok=True)
    private_folder(folder.parent)
    if _MEMORY.is_mount() and os.access(_MEMORY, os.W_OK):
        in_memory = tempfile.mkdtemp(prefix="truelog-", dir=_MEMORY)
        atexit.register(shutil.rmtree, in_memory, ignore_errors=True)
        folder.symlink_to(in_memory)
    else:
        private_folder(folder)
    return folder


def batch_range(checkpoint: Path, batch_id: int, begin: Positions, names: Names) -> tuple[Positions, Positions]:
    """The range [start, end) of a micro-batch; `begin` is the start of this run's batch 0."""
    start = _ends(checkpoint, batch_id - 1, begin, names) if batch_id else begin
    end = _ends(checkpoint, batch_id, begin, names)
    if not end.covers(start):
        raise RuntimeError(f"the log ends before positions that were read: {end.as_json()}, {start.as_json()}")
    return start, end


def _ends(checkpoint: Path, batch_id: int, begin: Positions, names: Names) -> Positions:
    """The end offsets of a batch. The file contains three lines: version, metadata, and offsets of the only source.

    The offsets are of topics by Kafka's names.
    """
    lines = (checkpoint / "offsets" / str(batch_id)).read_text().splitlines()
    if lines[0] != "v1" or len(lines) != 3:
        raise RuntimeError(f"offset log of batch {batch_id}: unknown format {lines[0]} with {len(lines)} lines")
    ends = Positions.from_json(lines[2]).renamed(lambda topic: names.name_of(topic) or topic)
    return Positions(ends.offsets, begin.ids)
