"""The words of a column are those of each of its texts."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from truelog.text.word_column import word_column
from truelog.text.words import words

TEXTS = st.text() | st.sampled_from(["Kafka, École!", "東京 都", "a_B", " ", "ß"])


@given(st.lists(st.none() | TEXTS))
def test_law_a_column_has_the_words_of_each_text(texts: list[str | None]) -> None:
    expected = [" ".join(words(text)) or None if text is not None else None for text in texts]
    assert word_column(pa.array(texts, pa.string())).to_pylist() == expected
    sliced = pa.array(["É", None, *texts], pa.string()).slice(2)
    assert word_column(sliced).to_pylist() == expected
