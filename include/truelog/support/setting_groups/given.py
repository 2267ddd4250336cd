"""Secrets that a process lacks on purpose: it loads the settings without them, and fails where it would use them."""

from pydantic_settings import BaseSettings

from truelog.support.errors import NotSetUp


def require_given(settings: BaseSettings, secret: str, instead_of: str = "") -> None:
    """Require that a secret was given. It may be empty.

    instead_of: the secret that the process should have, and which is missing or empty.

    Raises:
        NotSetUp: it was not. The message names the secret that the process should have.
    """
    if secret in settings.model_fields_set:
        return
    if instead_of:
        raise NotSetUp(
            f"This process has no {_variable(instead_of)}, or an empty one. It cannot use {_variable(secret)} instead, "
            f"because a pod or a container gets only the secrets that it needs. Give it {_variable(instead_of)}."
        )
    raise NotSetUp(
        f"This process has no {_variable(secret)}. A process gets only the secrets that it needs; "
        "`truelog up` writes all of them."
    )


def _variable(secret: str) -> str:
    return f"TRUELOG_{secret.upper()}"
