"""How commands show the difference of two versions of a view, or of a replay: the counts, and what differs by key."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from truelog.cli.output import Sheet, say
from truelog.storage import exact_json

if TYPE_CHECKING:
    from truelog.versions.difference import VersionDifference


def show_difference(found: "VersionDifference", cure: str = "") -> None:
    """Show the counts, the columns that differ, and the sample. `cure`: what to do about records that one lacks."""
    one, other = (f"version {side}" if isinstance(side, int) else side for side in (found.one, found.other))
    say(
        f"{one} has {found.rows[0]:,} rows, {other} has {found.rows[1]:,}: "
        f"{found.missing:,} missing, {found.extra:,} extra, {found.different:,} different",
        title=f"{found.view}: ",
    )
    for name, rows in found.columns.items():
        say(f"  {name}: {rows:,} rows differ")
    for title, names in (("added", found.added), ("removed", found.removed)):
        if names:
            say(f"  {title} columns: {', '.join(names)}")
    if found.apart:
        say(f"  {found.apart:,} records are counted in one of both only, and may explain differences. {cure}".rstrip())
    if found.sample:
        _sheet(found, one, other).show()


def _sheet(found: "VersionDifference", one: str, other: str) -> Sheet:
    """A line for each key. A row that both have is shown with the columns that differ."""
    table = Sheet("key", one, other)
    for each in found.sample:
        rows = each["one"], each["other"]
        key = next(row for row in rows if row is not None)
        shown = [name for name in key if name not in found.key and (None in rows or rows[0][name] != rows[1][name])]
        table.add_row(_pairs(key, (name for name in found.key if name in key)), *(_pairs(row, shown) for row in rows))
    differing = found.missing + found.extra + found.different
    if differing > len(found.sample):
        table.note(f"{len(found.sample):,} of {differing:,} differing rows; --limit shows more")
    return table


def _pairs(row: Mapping[str, Any] | None, columns: Iterable[str]) -> str:
    return "no row" if row is None else "\n".join(f"{name}={exact_json.write(row[name])}" for name in columns)
