"""Customers: the shop's table of customers, captured from its database (`docs/change-data-capture.md`).

The relation `current` equals the table, as of the place in the database's log up to which the view has read.
"""

from truelog import captured

VIEW = captured(
    "customers",
    key="id",
    columns={
        "name": "the customer's name",
        "email": "the customer's address for letters",
        "city": "where the customer lives",
        "credit": "a decimal number, as text",
        "is_active": "whether the customer may order",
        "since": "when the customer first ordered",
    },
    owner="shop",
)
