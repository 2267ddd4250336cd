"""A change of the shop's table of customers, as its database wrote it. `docs/change-data-capture.md` says how."""

from datetime import datetime

from pydantic import Field

from truelog import Change, Quality, Topic

TOPIC = Topic(
    key="id",
    subject=("id", "name", "email"),
    partitions=1,
    retention="7 days",
    compacted=True,
    source="public.customers",
)
# A table may rest for days, and a new snapshot brings all of its rows at once.
QUALITY = Quality(volume=(0, 1e9), keys=(0, 1e9), drift=1.0, late=1.0)


class Customers(Change):
    """A row of the table of customers was inserted, updated or deleted, or all rows were."""

    id: int | None = Field(None, examples=[1, 2, 3], description="The customer's number, the primary key.")
    name: str | None = Field(None, examples=["Ann", "Bob"], description="The customer's name.")
    email: str | None = Field(None, examples=["ann@shop.example"], description="The customer's address for letters.")
    city: str | None = Field(None, examples=["Oslo", "Turin"], description="Where the customer lives.")
    credit: str | None = Field(None, examples=["12.50", "0.00"], description="A decimal number, as text.")
    is_active: bool | None = Field(None, description="Whether the customer may order.")
    since: datetime | None = Field(None, description="When the customer first ordered.")
