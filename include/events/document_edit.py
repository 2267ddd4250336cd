"""A small edit of a document. A document is the result of its edits, and its history is never lost."""

from typing import Literal

from pydantic import Field

from truelog import Event, Topic

TOPIC = Topic(key="document_id", subject=("author_id",), partitions=4, retention="7 days", compacted=False)
LONGEST = 64  # characters that one edit inserts; a longer text is inserted by several edits


class DocumentEdit(Event):
    """A person typed, pasted or removed text."""

    document_id: str = Field(
        min_length=1, max_length=128, examples=["d1", "d2"], description="The site's id for the document."
    )
    author_id: str = Field(min_length=1, max_length=128, description="Who edited the document.")
    position: int = Field(ge=0, le=2**31 - 1, examples=[0, 1, 3, 7], description="Characters before the edit.")
    removed: int = Field(
        ge=0, le=2**31 - 1, examples=[0, 0, 1, 3], description="Characters removed after the position."
    )
    inserted: str | None = Field(None, max_length=LONGEST, description="The text inserted at the position, if any.")
    base_revision: int | None = Field(
        None,
        ge=0,
        le=2**31 - 1,
        examples=[0, 1, 2, 3, 5],
        description="The revision that the edit was made on: how many edits the document had. Without it, the position "
        "is in the text that the document has when the edit reaches the log.",
    )
    unit: Literal["code_points", "utf16"] | None = Field(
        None, description="In what `position` and `removed` count, code points if absent. JavaScript counts in utf16."
    )
