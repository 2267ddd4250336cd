"""Data Docs: what the sanitiser keeps from foreign HTML, and how long a page is stored."""

import re

import pytest

from truelog.quality import gx_docs
from truelog.quality.gx_docs import DocsHead
from truelog.support.settings import Settings


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ('<p class="lead">n &lt; 3</p>', '<p class="lead">n &lt; 3</p>'),
        ('<p id="a" style="x" onclick="x" data-toggle="y">1</p>', '<p id="a">1</p>'),
        ("<table><tr><td onclick=x>1</td></tr></table>", "<table><tbody><tr><td>1</td></tr></tbody></table>"),
        ("a<script>alert(1)</script>b", "ab"),
        ("a<SCRIPT SRC=//x>alert(1)</SCRIPT >b", "ab"),
        ("a<script>alert(1)", "a"),
        ("<style>p {}</style><svg><script>x</script></svg>b", "b"),
        ('<a href="javascript:x">here</a><img src=x onerror=x>', "here"),
        ('<link rel="stylesheet" href="http://x"><base href="http://x"><meta http-equiv="refresh">', ""),
        ('<div class="a&quot; onload=&quot;x">', '<div class="a&quot; onload=&quot;x"></div>'),
        ("&lt;script&gt;x&lt;/script&gt;", "&lt;script&gt;x&lt;/script&gt;"),
        ("<p><!-- <script>x</script> --><![CDATA[<b>]]>y", "<p>]]&gt;y</p>"),
    ],
)
def test_only_text_and_its_layout_remain(given: str, left: str) -> None:
    assert gx_docs.sanitize(given) == left


@pytest.mark.parametrize(
    "hostile",
    [
        "<svg onload=alert(1)>",
        "<svg/onload=alert(1)//",
        '<svg><use href="data:image/svg+xml,<svg onload=alert(1)>"/></svg>',
        '<a href="javascript:alert(1)">x</a>',
        '<a href="java&#10;script:alert(1)">x</a>',
        '<a href="data:text/html,<script>alert(1)</script>">x</a>',
        '<img src="data:image/svg+xml,<svg onload=alert(1)>">',
        '<p style="background:url(//x.example)">x</p>',
        '<table background="//x.example"><tr><td background="//x.example">x</td></tr></table>',
        "<video poster=//x.example><source src=//x.example onerror=alert(1)></video>",
        "<input autofocus onfocus=alert(1)><button formaction=javascript:alert(1)>x</button>",
        '<iframe srcdoc="<script>alert(1)</script>"></iframe>',
        # Mutation XSS: parsers disagree on where the nested language or the attribute ends.
        '<noscript><p title="</noscript><img src=x onerror=alert(1)>"></noscript>',
        '<noembed><img src="</noembed><img src=x onerror=alert(1)>"></noembed>',
        "<form><math><mtext></form><form><mglyph><style></math><img src onerror=alert(1)>",
        '<math><mtext><table><mglyph><style><!--</style><img title="--&gt;&lt;img src=1 onerror=alert(1)&gt;">',
        '<svg></p><style><a id="</style><img src=1 onerror=alert(1)>">',
        "<plaintext><script>alert(1)",
        "<xmp><script>alert(1)</script></xmp>",
        "<scr\x00ipt>alert(1)</script>",
    ],
)
def test_hostile_html_leaves_nothing_that_runs_or_loads(hostile: str) -> None:
    left = gx_docs.sanitize(hostile)
    tags = re.findall("<([^>]*)>", left)
    assert [each for each in tags if not re.fullmatch("/?(p|table|tbody|tr|td)", each)] == []
    assert gx_docs.sanitize(left) == left  # sanitising again changes nothing


def test_every_text_of_a_result_is_escaped() -> None:
    result = {"rows": [{"a": "<b>$x</b>\x1b\u202e", "n": 1.5, "nothing": None}], "fine": True}
    assert gx_docs.escape_texts(result) == {
        "rows": [{"a": "&lt;b&gt;&#36;x&lt;/b&gt;⟨1B⟩⟨202E⟩", "n": 1.5, "nothing": None}],
        "fine": True,
    }


def test_a_page_is_deleted_after_its_retention(s3: Settings) -> None:
    head = DocsHead("nothing of <it>", ["late 2 %: not <checked>"])
    gx_docs.store_page(s3, 4711, gx_docs.render_page(head, {"results": []}))
    assert gx_docs.drop_old_pages(s3) == 0
    found = gx_docs.read_page(s3, 4711) or b""
    assert b"<h1>nothing of &lt;it&gt;</h1><p>No metric could be checked.</p>" in found
    assert b"<li>late 2 %: not &lt;checked&gt;</li>" in found
    assert gx_docs.drop_old_pages(s3.model_copy(update={"data_docs_keep_seconds": 1e-6})) >= 1
    assert gx_docs.read_page(s3, 4711) is None
