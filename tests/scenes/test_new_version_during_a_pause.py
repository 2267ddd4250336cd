"""A version of an event type is registered while applications are suspended in the middle of their work."""

from pathlib import Path

import pytest

from tests.beds.world import World
from tests.scenes.applications import start
from tests.scenes.batch import Batch
from tests.scenes.declared import EVENT
from tests.scenes.parcels import BY_PARCEL, NAME, platform
from truelog.archive.table import archived_positions
from truelog.log import topics

LONG = "a" * 90


@pytest.mark.nightly
def test_each_record_is_judged_by_the_version_in_force_after_a_pause(
    world: World, batch: Batch, tmp_path: Path
) -> None:
    """A version is registered between the check of a batch and its merge, and between a check and an archive commit.

    The batch has passed the check under the first version, which refuses the long name. The second accepts it.
    """
    with platform(world, tmp_path) as parcels:
        parcels.start()
        parcels.declare()
        parcels.require_archived()
        parcels.end()

        ends = topics.end_offsets(parcels.settings, [NAME])
        parcels.append(LONG, 17)
        parcels.append("b", 19)
        faults = {"archive.py": "archive.files_written:1:stop", "stream.py": "merge.staged:1:stop"}
        parcels.running = [start(parcels.settings, script, fault=fault) for script, fault in faults.items()]
        for application in parcels.running:
            application.wait_fault()
        parcels.file.write_text(EVENT.replace("=64", "=100") + "    depot: str | None = None\n")
        parcels.soon(lambda: parcels.version() == 2, "the new version, under the suspended applications")
        parcels.append(LONG, 23)
        assert parcels.grams() == {"a": 5}
        archived = archived_positions(parcels.settings, [NAME])
        assert archived.covers(ends)
        assert not archived.covers(topics.end_offsets(parcels.settings, [NAME]))

        for application in parcels.running:
            application.resume()
        expected = {"a": 5, "b": 19, LONG: 23}
        parcels.soon(lambda: parcels.grams() == expected, "each record by the version in force")
        assert batch.reconcile(BY_PARCEL).equal
        batch.require_equal_from_raw([BY_PARCEL])
        parcels.end()
