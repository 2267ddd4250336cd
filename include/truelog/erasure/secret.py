"""The secret of the keyed hashes, which belongs to the home."""

import hmac

from truelog.erasure.erasure import Erasure
from truelog.erasure.subject import secret_check
from truelog.support.errors import NotSetUp
from truelog.support.settings import Settings


def secret_of(settings: Settings) -> bytes:
    """The secret of the hashes.

    Raises:
        NotSetUp: the home has none.
    """
    if secret := settings.erasure_secret.get_secret_value():
        return secret.encode()
    raise NotSetUp(
        "TRUELOG_ERASURE_SECRET is missing. Set it to a random text and keep it for ever: with another one, the "
        "platform would no longer know whom it has forgotten."
    )


def require_secret_of(settings: Settings, erasure: Erasure) -> None:
    """Require that the hashes of the erasure were made with the secret of this home.

    Raises:
        NotSetUp: with this secret, the erasure would cover no record.
    """
    if not hmac.compare_digest(erasure.secret_check, secret_check(secret_of(settings))):
        raise NotSetUp(
            f"erasure {erasure.id} was made with another TRUELOG_ERASURE_SECRET, so this one finds nothing of it. "
            "Set the secret that the home had then."
        )
