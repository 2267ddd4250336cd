"""Both ways of decoding agree on ten million generated and mutated records. Each quarter is a part of the nightly run.

Each portion of records has a seed, and `TRUELOG_DECODER_SEED` is the first seed. A difference names its seed.
"""

import logging
import os
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial

import pytest

from tests.deadline import deadline
from tests.library.schema.strange_records import Compared, compare

QUARTERS = (1, 2, 3, 4)
_RECORDS = 2_500_000  # of a quarter
_FIRST_SEED = int(os.environ.get("TRUELOG_DECODER_SEED", "1_000"))
_PORTION = 25_000
_SECONDS = 1_200

log = logging.getLogger("truelog.nightly")


@pytest.mark.parametrize("quarter", QUARTERS)
@pytest.mark.timeout(deadline(_SECONDS + 60))
def test_the_decoders_agree(quarter: int) -> None:
    first = _FIRST_SEED + (quarter - 1) * _RECORDS // _PORTION
    seeds = range(first, first + _RECORDS // _PORTION)
    found = Compared()
    with ProcessPoolExecutor() as processes:
        portions = [processes.submit(partial(compare, records=_PORTION), seed) for seed in seeds]
        try:
            for done, portion in enumerate(as_completed(portions, timeout=deadline(_SECONDS)), 1):
                found += portion.result()
                if done % 20 == 0:
                    log.warning("%s after %d portions", found, done)
        finally:
            processes.shutdown(cancel_futures=True)
    log.warning("all: %s", found)
    assert found.records >= _RECORDS
