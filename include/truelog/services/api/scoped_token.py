"""Scoped tokens: what a browser may hold. Each is limited to one relation of one view, and to one value of columns.

A back end exchanges its API key for a token, such as "the rows of `home_timeline` whose `reader_id` is p7". The token
is a JWT that expires within minutes. It ends earlier if the back end's key is revoked. Nothing else is reachable with
it.
"""

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass

import jwt

from truelog.storage.api_key import KeyRing, Role
from truelog.support.errors import NotSetUp, RequestRefused
from truelog.support.settings import Settings

_ALGORITHM = "HS256"
_ISSUER = "truelog"
_CLAIMS = ["iss", "aud", "sub", "exp", "iat", "jti", "rel", "scope"]
_LONGEST = 8_192  # characters
_AHEAD_SECONDS = 5  # that the clock of the process that made a token may be ahead of this one's


@dataclass(frozen=True)
class Scope:
    """What a token permits: the rows of a relation in which the columns have these values. "" is the view itself."""

    view: str
    relation: str
    values: Mapping[str, str]


@dataclass(frozen=True)
class Grant:
    """A valid token: what it permits, the name of the key that it was made with, and its own id."""

    scope: Scope
    holder: str
    id: str


class TokenSigner:
    """Makes and checks tokens with the secret of the settings, which all processes of the API share."""

    def __init__(self, settings: Settings, keys: KeyRing) -> None:
        if not settings.api_token_secret:
            raise NotSetUp("no TRUELOG_API_TOKEN_SECRET: run `truelog up`, or set a secret of at least 32 characters")
        self._secret = settings.api_token_secret.get_secret_value()
        self._keys = keys

    def sign(self, scope: Scope, holder: str, seconds: int) -> str:
        """A token that the holder of an API key may give away."""
        now = int(time.time())
        claims = {
            "iss": _ISSUER,
            "sub": holder,
            "aud": scope.view,
            "rel": scope.relation,
            "scope": dict(scope.values),
            "iat": now,
            "exp": now + seconds,
            "jti": uuid.uuid4().hex,
        }
        return jwt.encode(claims, self._secret, _ALGORITHM)

    def grant_of(self, token: str) -> Grant:
        """Check a token.

        Raises:
            RequestRefused: the token is not of this platform, or has expired, or its key is revoked.
        """
        if len(token) > _LONGEST:
            raise _invalid("it is not a token of this platform")
        try:
            claims = jwt.decode(
                token,
                self._secret,
                [_ALGORITHM],
                issuer=_ISSUER,
                leeway=_AHEAD_SECONDS,  # also for the end, which follows
                options={"require": _CLAIMS, "verify_aud": False},
            )
            if int(claims["exp"]) <= time.time():
                raise jwt.ExpiredSignatureError
        except jwt.ExpiredSignatureError:
            raise _invalid("it has expired; ask your back end for another") from None
        except jwt.InvalidTokenError:
            raise _invalid("it is not a token of this platform") from None
        if not self._keys.knows(claims["sub"], Role.READER):
            raise _invalid("the key that it was made with is revoked")
        return Grant(Scope(claims["aud"], claims["rel"], claims["scope"]), claims["sub"], claims["jti"])


def is_token(credential: str) -> bool:
    """Whether a credential has the form of a JWT. An API key has one dot."""
    return credential.count(".") == 2


def _invalid(reason: str) -> RequestRefused:
    return RequestRefused(401, f"the scoped token is not valid: {reason}")
