"""A book of rules to which records are added, in any portions, has the versions that follow from all records."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.library.patterns.together.drawn import SOURCES, draw_changes
from truelog.patterns.rule import Rule
from truelog.patterns.versions import Book, Version, differences, reader, versions

READ = reader(SOURCES)


def _by_rule(found: list[Version[Rule]]) -> list[Version[Rule]]:
    return sorted(found, key=lambda each: (each.rule.name, each.number))


@given(st.integers(0, 2**32))
@settings(max_examples=150, deadline=None)
def test_records_in_portions_make_the_versions_of_all_records(seed: int) -> None:
    chosen = Random(seed)
    changes = draw_changes(chosen, 4, 12, 9)
    chosen.shuffle(changes)
    book, read = Book[Rule](), 0
    while read < len(changes):
        portion = changes[read : read + chosen.randint(1, 5)]
        before, read = book, read + len(portion)
        book = before.with_changes(portion, READ)
        every, earlier = versions(changes[:read], READ), versions(changes[: read - len(portion)], READ)
        assert _by_rule(book.every()) == _by_rule(every)
        changed = book.changed_since(before)
        assert set(changed) <= {each.rule for each in portion}
        assert differences(before.of(changed), book.of(changed)) == differences(earlier, every)


def test_only_the_versions_of_changed_rules_are_made_again() -> None:
    changes = draw_changes(Random(3), 4, 12, 9)
    last, asked = changes[-1], list[str]()

    def read(name: str, definition: str | None) -> object:
        asked.append(name)
        return READ(name, definition)

    before = Book[Rule]().with_changes(changes[:-1], READ)
    after = before.with_changes([last], read)  # type: ignore[arg-type]
    assert set(asked) == {last.rule}
    assert all(after.versions[name] is each for name, each in before.versions.items() if name != last.rule)
