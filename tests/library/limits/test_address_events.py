"""Each address has its own limit of events, and a network of IPv6 is one address."""

import pytest

from truelog.limits.address_events import AddressEventLimit
from truelog.support.errors import RequestRefused


def test_an_address_that_sends_too_much_is_refused_alone() -> None:
    now = 0.0
    limit = AddressEventLimit(20.0, lambda: now)
    limit.take("192.0.2.1", 1_000)
    with pytest.raises(RequestRefused, match="20 events per second") as raised:
        limit.take("192.0.2.1", 30)
    assert (raised.value.status, raised.value.retry_after) == (429, 2)
    limit.take("192.0.2.2", 1_000)
    now = 2.0
    limit.take("192.0.2.1", 30)


def test_a_full_request_of_the_tracker_fits_every_limit() -> None:
    AddressEventLimit(0.1, lambda: 0.0).take("192.0.2.1", 500)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:192.0.2.1", "::ffff:192.0.2.2", False),
        (None, "testclient", True),
    ],
)
def test_which_addresses_count_together(one: str | None, other: str, *, same: bool) -> None:
    limit = AddressEventLimit(1.0, lambda: 0.0)
    limit.take(one, 500)
    if same:
        with pytest.raises(RequestRefused):
            limit.take(other, 1)
    else:
        limit.take(other, 500)
