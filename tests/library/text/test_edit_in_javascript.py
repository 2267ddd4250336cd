"""The rule of concurrent edits in JavaScript, as `docs/documents.md` has it, gives what `truelog.text.edit` gives."""

import json
import re
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

from tests.deadline import deadline
from tests.library.text.edit_rules import RULES
from tests.library.text.public_edits import PUBLIC
from truelog.support.settings import PROJECT
from truelog.text.edit import Edit, after, edit_at, edited

GENERATED = 400
LETTERS = "ab\U0001f600e\u0301\u6771"  # two of them are wide or combining, so units and code points differ
# Both orders of two edits, and the author of the second who shows it at once and then receives the first.
COMPARISON = """
import { after, changes, editAt, edited, receive } from "./edit.js";

const compared = JSON.parse(await new Response(Deno.stdin.readable).text()).map(({ text, first, second, rows }) => {
  const [one, two] = [editAt(...first), editAt(...second)];
  const editor = { text: edited(text, two), pending: two, eventId: "second" };
  const received = [...rows, { event_id: "third", step: null }].reduce(receive, editor);
  const pending = changes(after(two, changes(one))).map(({ place, size }) => [place, size]);
  return {
    texts: [
      edited(edited(text, one), after(two, changes(one))),
      edited(edited(text, two), after(one, changes(two), false)),
      received.text,
    ],
    pending,
    kept: changes(received.pending).map(({ place, size }) => [place, size]),
    own: receive(received, { event_id: "second", step: 1 }).pending,
  };
});
console.log(JSON.stringify(compared));
"""

Case = tuple[str, Edit, Edit]


def test_a_browser_transforms_edits_as_the_platform_does(tmp_path: Path) -> None:
    cases = [(text, first, second) for text, first, second, _ in (PUBLIC | RULES).values()]
    chosen = Random(20261127)
    cases += [generated(chosen) for _ in range(GENERATED)]
    found = in_javascript([in_units(*case) for case in cases], tmp_path)
    assert len(found) == len(cases)
    for (text, first, second), result in zip(cases, found, strict=True):
        moved = after(second, first.changes)
        seen = edited(edited(text, first), moved)
        assert result["texts"] == [seen] * 3, (text, first, second)
        expected = [[*change] for change in in_utf16(edited(text, first), moved)]
        assert (result["pending"], result["kept"], result["own"]) == (expected, expected, None)


def generated(chosen: Random) -> Case:
    text = "".join(chosen.choices(LETTERS, k=chosen.randint(0, 12)))

    def edit(inserted: str) -> Edit:
        position = chosen.randint(0, len(text))
        return edit_at(position, chosen.randint(0, len(text) - position), inserted[: chosen.randint(0, len(inserted))])

    return text, edit("x\U0001f601"), edit("\U0001f602y")


def units(text: str) -> int:
    return len(text.encode("utf-16-be")) // 2


def in_units(text: str, first: Edit, second: Edit) -> dict[str, Any]:
    """The case as a browser has it, and the first edit as rows of the relation `recent_edits`."""

    def given(edit: Edit) -> tuple[int, int, str]:
        removed = sum(units(text[start:end]) for start, end in edit.ranges)
        return units(text[: edit.place]), removed, edit.inserted

    rows = [
        {
            "event_id": "first",
            "step": step,
            "utf16_position": place,
            "utf16_removed": max(-size, 0),
            "inserted": first.inserted if size > 0 else "",
        }
        for step, (place, size) in enumerate(in_utf16(text, first), 1)
    ]
    return {"text": text, "first": given(first), "second": given(second), "rows": rows}


def in_utf16(text: str, edit: Edit) -> list[tuple[int, int]]:
    """The steps of an edit of this text, in UTF-16 units."""
    steps = []
    for place, size in edit.changes:
        gone = text[place : place + max(-size, 0)]
        steps.append((units(text[:place]), units(edit.inserted) if size > 0 else -units(gone)))
        text = text[:place] + (edit.inserted if size > 0 else "") + text[place + len(gone) :]
    return steps


def in_javascript(cases: list[dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    page = (PROJECT / "docs" / "documents.md").read_text()
    [rule] = re.findall(r"```js\n(// edit\.js.*?)```", page, re.DOTALL)
    (folder / "edit.js").write_text(rule)
    (folder / "compare.js").write_text(COMPARISON)
    deno = str(Path(sys.executable).parent / "deno")
    command = [deno, "run", "--quiet", str(folder / "compare.js")]
    done = subprocess.run(
        command, input=json.dumps(cases), stdout=subprocess.PIPE, text=True, check=True, timeout=deadline(60)
    )
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found
