"""The classes of characters contain the same characters in Python and in Spark."""

import re

import pytest
from pyspark.sql import functions as F

from tests.beds.lab import Lab
from truelog.text.characters import char_class, java_class

SURROGATES = range(0xD800, 0xE000)
EDGE = re.compile(r"[0-9A-F]{8}")


@pytest.mark.parametrize("name", ["assigned", "spaced", "unspaced", "mark"])
def test_law_a_class_is_the_same_in_spark(lab: Lab, name: str) -> None:
    near = {int(edge, 16) + step for edge in EDGE.findall(char_class(name)) for step in (-1, 0, 1)}
    chars = [chr(code) for code in sorted(near) if code not in SURROGATES and code <= 0x10FFFF]
    frame = lab.spark.createDataFrame([(each,) for each in chars], "char string")
    found = [row["char"] for row in frame.where(F.col("char").rlike(f"[{java_class(name)}]")).collect()]
    assert found == [each for each in chars if re.match(f"[{char_class(name)}]", each)]
