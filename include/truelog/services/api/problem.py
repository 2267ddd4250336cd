"""Problems: each refusal of the API, in the form of RFC 9457 (`application/problem+json`).

`type` names the problem for programs, and `detail` says what is wrong and what to do. Some problems have more members.
"""

from collections.abc import Mapping
from enum import StrEnum
from http import HTTPStatus
from typing import Any

from starlette.responses import JSONResponse

from truelog.support.errors import RequestRefused

MEDIA_TYPE = "application/problem+json"
_NAMESPACE = "urn:truelog:problem:"


class Kind(StrEnum):
    """The kinds of problems that have a meaning beyond their status."""

    BEHIND = "behind"  # the view has not reached the positions of a token in time
    DEAD_LETTER = "dead-letter"  # the token is of a dead letter, which no view counts
    MOVED = "moved"  # the view has changed since the page before
    NO_PAST = "no-past"  # the view cannot be rebuilt as of the time
    NOT_PUBLISHED = "not-published"  # the view does not publish its changes
    OTHER_VERSION = "other-version"  # readers see another version of the view
    RECREATED = "recreated"  # a topic was deleted and created again since the token was made
    SLOW = "slow"  # the statement has reached its time limit


class Problem(RequestRefused):
    """A refusal with a kind, and with further members for programs."""

    def __init__(
        self, status: int, reason: str, kind: Kind | None = None, *, retry_after: int | None = None, **more: Any
    ) -> None:
        super().__init__(status, reason, retry_after=retry_after)
        self.kind = kind
        self.more = more


def response(refused: RequestRefused, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """The answer to a refused request."""
    kind = refused.kind if isinstance(refused, Problem) else None
    body = {
        "type": _NAMESPACE + kind if kind else "about:blank",
        "title": HTTPStatus(refused.status).phrase,
        "status": refused.status,
        "detail": str(refused),
        **(refused.more if isinstance(refused, Problem) else {}),
    }
    return JSONResponse(body, refused.status, headers_of(refused, headers), media_type=MEDIA_TYPE)


def headers_of(refused: RequestRefused, headers: Mapping[str, str] | None = None) -> dict[str, str]:
    """These headers, with the time after which to ask again and the way to sign in, where the refusal has them."""
    all_headers = dict(headers or {})
    if refused.retry_after is not None:
        all_headers["Retry-After"] = str(refused.retry_after)
    if refused.status == HTTPStatus.UNAUTHORIZED:
        all_headers["WWW-Authenticate"] = "Bearer"
    return all_headers
