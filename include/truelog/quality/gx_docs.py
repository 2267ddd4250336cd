"""Data Docs: pages that the Great Expectations renderer makes from validation results, stored in the bucket.

The renderer's pages load scripts from other hosts and do not escape values. Therefore this module escapes all text
before rendering and keeps only the tags and attributes that lay out text.
"""

import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import nh3

from truelog.storage import bucket
from truelog.support.settings import Settings

FOLDER = "data-docs"
_BLOCKS = {"div", "p", "hr", "pre", "ul", "ol", "li", "table", "thead", "tbody", "tr", "th", "td"}
_TAGS = {f"h{n}" for n in range(1, 7)} | _BLOCKS | {"span", "br", "strong", "b", "em", "i", "small", "code"}
_ATTRIBUTES = {"class", "id", "hidden"}
_REMOVED = {"script", "style", "template", "svg", "math", "noscript", "title", "textarea", "iframe", "object"}
_CLEANER = nh3.Cleaner(
    tags=_TAGS,
    clean_content_tags=_REMOVED,  # removed with their content; the text inside other removed tags stays
    attributes={"*": _ATTRIBUTES},
    url_schemes=set(),
    link_rel=None,
)
# Control characters and characters that change the text direction, the same set as on the other pages.
_INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
_ROWS = 20  # unexpected rows on a page; a reconciliation's page shows more
_DOCUMENT = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title>
<link rel="stylesheet" href="../static/pages.css"><link rel="stylesheet" href="../static/data-docs.css"></head>
<body><main><h1>{title}</h1>{body}</main></body></html>
"""


@dataclass(frozen=True)
class DocsHead:
    """The title of a page, and the reasons that explain its results."""

    title: str
    reasons: Sequence[str] = ()


def render_page(head: DocsHead, result: Mapping[str, Any]) -> bytes:
    """Render the page of a validation result, given as JSON."""
    parts = [part for each in result["results"] for part in _suite(each)]
    body = "" if parts else "<p>No metric could be checked.</p>"
    if head.reasons:
        body += f"<ul>{''.join(f'<li>{_text(each)}</li>' for each in head.reasons)}</ul>"
    return _DOCUMENT.format(title=_text(head.title), body=body + "".join(parts)).encode()


def store_page(settings: Settings, number: int, page: bytes) -> None:
    """Store a page under the id of its row in `truelog.validation`."""
    bucket.s3_client(settings).put_object(
        Bucket=settings.s3_bucket, Key=_key(number), Body=page, ContentType="text/html; charset=utf-8"
    )


def read_page(settings: Settings, number: int) -> bytes | None:
    """Read a page; None if it was never stored or has been removed."""
    client = bucket.s3_client(settings)
    try:
        return client.get_object(Bucket=settings.s3_bucket, Key=_key(number))["Body"].read()
    except client.exceptions.NoSuchKey:
        return None


def drop_pages(settings: Settings, numbers: Iterable[int]) -> None:
    """Delete the pages of these validations. S3 accepts the deletion of a page that does not exist."""
    client = bucket.s3_client(settings)
    for number in numbers:
        client.delete_object(Bucket=settings.s3_bucket, Key=_key(number))


def drop_old_pages(settings: Settings) -> int:
    """Delete the pages that are older than `data_docs_keep_seconds` and return how many were deleted."""
    client, limit = bucket.s3_client(settings), datetime.now(UTC) - timedelta(seconds=settings.data_docs_keep_seconds)
    pages = bucket.list_objects(client, settings.s3_bucket, f"{FOLDER}/")
    old = [each["Key"] for each in pages if each["LastModified"] < limit]
    for key in old:
        client.delete_object(Bucket=settings.s3_bucket, Key=key)
    return len(old)


def sanitize(page: str) -> str:
    """Keep text and its layout; remove scripts, styles, event handlers, links and addresses."""
    return _CLEANER.clean(page)


def _suite(result: Mapping[str, Any]) -> Iterator[str]:
    from great_expectations.core.expectation_validation_result import expectationSuiteValidationResultSchema
    from great_expectations.render.renderer.page_renderer import ValidationResultsPageRenderer
    from great_expectations.render.view.view import DefaultJinjaSectionView

    loaded = expectationSuiteValidationResultSchema.load(escape_texts(json.loads(json.dumps(result, default=str))))
    document = ValidationResultsPageRenderer().render(loaded)
    view: Any = DefaultJinjaSectionView()
    for number, section in enumerate(document.to_json_dict()["sections"], 1):
        yield sanitize(view.render({"section": section, "section_loop": {"index": number}}))
    for outcome in result["results"]:
        config, details = outcome["expectation_config"], outcome["result"].get("details") or {}
        rows = details.get("unexpected_rows") or []
        if "observed" not in config["meta"]:
            yield from _rows(config["description"], rows[:_ROWS])


def escape_texts(value: Any) -> Any:
    """Escape all text in a result, and every `$`, which would start a parameter in the renderer's templates."""
    if isinstance(value, str):
        return _text(value).replace("$", "&#36;")
    if isinstance(value, dict):
        return {name: escape_texts(each) for name, each in value.items()}
    return [escape_texts(each) for each in value] if isinstance(value, list) else value


def _rows(rule: str, rows: list[dict[str, Any]]) -> Iterator[str]:
    """The unexpected rows, which the renderer only counts."""
    if rows:
        heads = "".join(f"<th>{_text(str(name))}</th>" for name in rows[0])
        yield f"<h3>Rows that break the rule: {_text(rule)}</h3>"
        yield f'<div class="broken"><table><thead><tr>{heads}</tr></thead><tbody>'
        for row in rows:
            yield "<tr>" + "".join(f"<td>{_text(_value(value))}</td>" for value in row.values()) + "</tr>"
        yield "</tbody></table></div>"


def _value(value: Any) -> str:
    """A value as the other pages write it."""
    if value is None:
        return "NULL"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _text(value: str) -> str:
    """Escape text and show each invisible character as its code."""
    return html.escape(_INVISIBLE.sub(lambda match: f"⟨{ord(match[0]):02X}⟩", value))


def _key(number: int) -> str:
    return f"{FOLDER}/{number}.html"
