"""What may go wrong when an application sends or reads. Every error is a `ClientError`.

ClientError
├── Unavailable      the service did not answer, or was too busy, until the time limit
├── NoToken          a read should wait for events, but their receipt has no position token
├── Refused          the service refused the request; sending it again unchanged is useless
│   ├── NotPermitted the key or the token is not valid, or does not permit the request
│   ├── NotFound     there is no such view or relation
│   ├── Behind       the view has not reached a position token in time; `behind` has the missing records
│   ├── Moved        the view has changed since the page before
│   └── Recreated    a topic was deleted and created again since the token was made
└── EventsRefused    some events are dead letters; `receipt` says which, and why
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from truelog.client.receipt import Receipt


class ClientError(Exception):
    """Base class of the errors of the client. The client's package does not have the errors of the platform."""


class Unavailable(ClientError):
    """The service did not answer in time. What was sent may be in the log; a retry has the same event ids."""


class NoToken(ClientError):
    """A read should wait for events, but their receipt has no position token. Without `at_least`, it does not wait."""


class Refused(ClientError):
    """The service refused the request. `problem` has the members of its answer."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        super().__init__(f"{status}: {problem.get('detail') or problem.get('error') or 'refused'}")
        self.status = status
        self.problem = problem


class NotPermitted(Refused):
    """The key or the token is not valid, or does not permit the request."""


class NotFound(Refused):
    """There is no such view or relation."""


class Behind(Refused):
    """The view has not reached the position token in time."""

    @property
    def behind(self) -> Mapping[str, Mapping[str, int]]:
        """How many records the view lacks, by topic and partition."""
        found: Mapping[str, Mapping[str, int]] = self.problem["behind"]
        return found


class Moved(Refused):
    """The view has changed since the page before, so a walk would not show one state."""


class Recreated(Refused):
    """A topic was deleted and created again since the token was made."""


class EventsRefused(ClientError):
    """Some events are dead letters. The others are in the log."""

    def __init__(self, receipt: "Receipt") -> None:
        first = receipt.bad[0]
        super().__init__(
            f"{len(receipt.bad)} events are dead letters; event {first.index}: {first.field}: {first.reason}"
        )
        self.receipt = receipt


_KINDS: Mapping[str, type[Refused]] = {"behind": Behind, "moved": Moved, "recreated": Recreated}
_STATUSES: Mapping[int, type[Refused]] = {401: NotPermitted, 403: NotPermitted, 404: NotFound}


def refusal(status: int, problem: Mapping[str, Any]) -> Refused:
    """The error of a refused request."""
    kind = str(problem.get("type", "")).rpartition(":")[2]
    return (_KINDS.get(kind) or _STATUSES.get(status, Refused))(status, problem)
