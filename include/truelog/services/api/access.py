"""Who asks: the holder of an API key, or of a scoped token, which permits one question about one view."""

from dataclasses import dataclass

from starlette.requests import Request

from truelog.services.api.declaration import CHANGES, SCOPED, TOKENS
from truelog.services.api.scoped_token import Scope, TokenSigner, is_token
from truelog.services.declaration import Route
from truelog.storage.api_key import KeyRing
from truelog.support.errors import RequestRefused


@dataclass(frozen=True)
class Asker:
    """The name of the API key. With a token, also what the token permits, and its id."""

    name: str
    scope: Scope | None = None
    token: str | None = None


def authorize(request: Request, route: Route, keys: KeyRing, signer: TokenSigner) -> Asker:
    """The sender of a request, who may ask the route.

    Raises:
        RequestRefused: 401, the key or the token is not valid. 403, it does not permit the request.
    """
    assert route.role is not None  # noqa: S101
    authorization = request.headers.get("authorization", "")
    if not authorization and route is CHANGES and is_token(held := request.query_params.get("token", "")):
        authorization = f"Bearer {held}"  # an API key is never part of a URL
    scheme, _, credential = authorization.partition(" ")
    if scheme.lower() != "bearer" or not is_token(credential.strip()):
        return Asker(keys.authorize(authorization, route.role).name)
    grant = signer.grant_of(credential.strip())
    scope = grant.scope
    asked = request.path_params.get("view"), request.path_params.get("relation", "")
    if route not in SCOPED or asked != (scope.view, scope.relation):
        what = "make tokens" if route is TOKENS else "ask this"
        raise RequestRefused(403, f"the scoped token may not {what}; it permits {_permitted(scope)}")
    return Asker(grant.holder, scope, grant.id)


def _permitted(scope: Scope) -> str:
    return f"the relation {scope.relation} of {scope.view}" if scope.relation else f"the rows of {scope.view}"
