"""Origins of web pages, such as https://shop.example."""

import re

_ORIGIN = re.compile(r"https?://[a-z0-9.-]+(:\d+)?")


def require_origin(text: str) -> str:
    """The text, if it is an origin. Raises ValueError otherwise."""
    if not _ORIGIN.fullmatch(text):
        raise ValueError(f"{text!r} is not an origin such as https://shop.example")
    return text
