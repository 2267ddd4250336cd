"""Both ways of decoding agree. `tests/nightly/decoder.py` compares more records."""

import pyarrow as pa

from tests.library.hostile import GOOD, THING, thing
from tests.library.schema.strange_records import SHARES, Compared, compare
from truelog.schema.plain_records import _BYTES, _RECORDS, _SAMPLE, _parts, parse_plain

RECORDS, SEEDS = 20_000, 2


def test_the_decoders_agree_on_generated_and_mutated_records() -> None:
    found = sum((compare(seed, RECORDS // SEEDS, SHARES[:-1]) for seed in range(SEEDS)), Compared())
    assert found.records >= RECORDS
    assert found.strange >= RECORDS / 100
    assert RECORDS / 2 <= found.valid <= 0.98 * found.records


def plain(*values: bytes | None) -> list[bool]:
    mask: list[bool] = parse_plain(THING, pa.array(values, pa.binary()), []).mask.tolist()
    return mask


def test_undeclared_fields_that_recur_are_learned() -> None:
    assert plain(*[thing('"learned":{"a":["b"]}'), thing('"learned":null')] * _SAMPLE) == [True] * 2 * _SAMPLE
    assert plain(thing('"learned":1'), GOOD, GOOD, GOOD, GOOD, thing('"rare":1')) == [True] * 5 + [False]


def test_a_record_with_an_escaped_character_is_plain() -> None:
    record = thing(r'"short":"\"\\\"","unknown":"\\"')
    assert plain(*[record] * 3) == [True] * 3


def test_a_record_in_which_a_field_is_lost_is_not_plain() -> None:
    lost = [
        thing('"number":1,"number":1'),
        thing(r'"number":1,"\u006eumber":1'),
        thing('"unknown":1,"unknown":1'),
        thing('"unknown":{"a":1,"a":1}'),
    ]
    assert plain(*[GOOD] * 20, *[thing('"unknown":1')] * 4, *lost) == [True] * 24 + [False] * 4


def test_records_that_change_when_they_are_decoded_are_not_plain() -> None:
    assert plain(*[GOOD] * 20, thing(r'"short":"\u0000"'), None, b"", b"[]") == [True] * 20 + [False] * 4


def test_large_records_are_parsed_in_small_parts() -> None:
    large = thing(f'"unknown":"{"x" * 2**20}"')
    values = pa.array([GOOD, *[large] * 40, *[GOOD] * 5_000], pa.binary())
    parts = [values.slice(start, end - start) for start, end in _parts(values)]
    assert sum(map(len, parts)) == len(values)
    assert max(map(len, parts)) <= _RECORDS
    assert max(sum(map(len, part.to_pylist())) for part in parts) <= _BYTES + len(large)
    assert parse_plain(THING, values, []).columns.num_rows >= 5_001
