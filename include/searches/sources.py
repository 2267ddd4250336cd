"""What searches may name: the text fields of each event type. `docs/searches.md` lists them."""

from truelog.searches.catalogue import TextSource

SOURCES = {
    "comment": TextSource(fields=("text",), known={"verb": ("posted",)}),
    "post": TextSource(fields=("text",), known={"verb": ("posted",)}),
    "tweet": TextSource(fields=("text",), known={"verb": ("posted",)}),
}
