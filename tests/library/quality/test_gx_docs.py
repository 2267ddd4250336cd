"""Data Docs: what is left of HTML that somebody else made, and how long a page is kept."""

import pytest

from truelog.quality import gx_docs
from truelog.support.settings import Settings


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ('<p class="lead">n &lt; 3</p>', '<p class="lead">n &lt; 3</p>'),
        ('<td id="a" style="x" onclick="x" data-toggle="y">1</td>', '<td id="a">1</td>'),
        ("a<script>alert(1)</script>b", "ab"),
        ("a<SCRIPT SRC=//x>alert(1)</SCRIPT >b", "ab"),
        ("a<script>alert(1)", "a"),
        ("<style>p {}</style><svg><script>x</script></svg>b", "b"),
        ('<a href="javascript:x">here</a><img src=x onerror=x>', "here"),
        ('<link rel="stylesheet" href="http://x"><base href="http://x"><meta http-equiv="refresh">', ""),
        ('<div class="a&quot; onload=&quot;x">', '<div class="a&quot; onload=&quot;x">'),
        ("&lt;script&gt;x&lt;/script&gt;", "&lt;script&gt;x&lt;/script&gt;"),
        ("<p><!-- <script>x</script> --><![CDATA[<b>]]>y", "<p>y"),
    ],
)
def test_only_what_says_how_text_is_set_is_left(given: str, left: str) -> None:
    assert gx_docs.sanitize(given) == left


def test_every_text_of_a_result_is_made_harmless() -> None:
    given = {"rows": [{"a": "<b>$x</b>\x1b\u202e", "n": 1.5, "nothing": None}], "fine": True}
    assert gx_docs.harmless(given) == {
        "rows": [{"a": "&lt;b&gt;&#36;x&lt;/b&gt;⟨1B⟩⟨202E⟩", "n": 1.5, "nothing": None}],
        "fine": True,
    }


def test_a_page_is_kept_for_its_time(s3: Settings) -> None:
    gx_docs.store_page(s3, 4711, gx_docs.render_page("nothing of <it>", {"results": []}))
    assert gx_docs.drop_old_pages(s3) == 0
    found = gx_docs.read_page(s3, 4711) or b""
    assert b"<h1>nothing of &lt;it&gt;</h1><p>Nothing could be judged.</p>" in found
    assert gx_docs.drop_old_pages(s3.model_copy(update={"data_docs_keep_seconds": 1e-6})) >= 1
    assert gx_docs.read_page(s3, 4711) is None
