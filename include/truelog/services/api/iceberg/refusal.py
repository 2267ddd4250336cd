"""Refusals in the form of Iceberg's REST protocol, which its clients turn into their own exceptions."""

from collections.abc import Mapping
from enum import StrEnum
from http import HTTPStatus

from starlette.responses import JSONResponse

from truelog.services.api import problem
from truelog.services.api.declaration import CATALOG
from truelog.support.errors import RequestRefused

_TYPES = {
    400: "BadRequestException",
    401: "NotAuthorizedException",
    403: "ForbiddenException",
    404: "NotFoundException",
    405: "UnsupportedOperationException",
    503: "ServiceUnavailableException",
}


class Missing(StrEnum):
    """What a path names that the catalog does not have."""

    NAMESPACE = "NoSuchNamespaceException"
    TABLE = "NoSuchTableException"


class NotFound(RequestRefused):
    """404, for a namespace or a table."""

    def __init__(self, kind: Missing, reason: str) -> None:
        super().__init__(404, reason)
        self.kind = kind


def is_of_catalog(path: str) -> bool:
    """Whether the clients of a path are those of the catalog."""
    return path.startswith(f"{CATALOG}/")


def response(refused: RequestRefused, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """The answer to a refused request. The protocol has 400 for each parameter that is not valid."""
    status = 400 if refused.status == HTTPStatus.UNPROCESSABLE_ENTITY else refused.status
    kind = refused.kind if isinstance(refused, NotFound) else _TYPES.get(status, "RESTException")
    body = {"error": {"message": str(refused), "type": kind, "code": status}}
    return JSONResponse(body, status, problem.headers_of(refused, headers))
