"""A Kafka of one's own, whose clients sign in with tokens of an OpenID provider."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import runtime
from runtime import kafka
from tests.beds.authority import Authority
from tests.beds.openid import AUDIENCE, CLIENT, SCOPE, Provider
from tests.beds.own_stores import Change, rewrite, running
from tests.deadline import until
from truelog.support.settings import ENVIRONMENT_FILE, Settings

_OAUTH = "org.apache.kafka.common.security.oauthbearer"
_ALLOWED = "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls"


@contextmanager
def kafka_with_openid(home: Path, authority: Authority, openid: Provider) -> Iterator[Settings]:
    """The settings with which a platform reaches a broker that validates tokens. Brokers sign in with a password.

    The broker ends a connection whose token has expired.
    """
    settings = runtime.set_up(home, random_ports=True)
    kafka.configure(settings)
    rewrite(home / "kafka" / "server.properties", _with_tokens(settings, authority, openid))
    java, *arguments = kafka.command(settings)
    with running(home, "kafka", [java, f"{_ALLOWED}={openid.keys_url}", *arguments]):
        until(partial(kafka.ready, settings), 60, "Kafka")
        lines = "".join(f"TRUELOG_{name.upper()}={value}\n" for name, value in _choices(authority, openid).items())
        rewrite(home / ENVIRONMENT_FILE, lambda text: text + lines)
        yield Settings(home=home)


def _choices(authority: Authority, openid: Provider) -> dict[str, object]:
    return {
        "stores": "own",
        "kafka_mechanism": "OAUTHBEARER",
        "kafka_oauth_token_url": openid.token_url,
        "kafka_oauth_client_id": CLIENT,
        "kafka_oauth_client_secret": openid.secrets[CLIENT],
        "kafka_oauth_scope": SCOPE,
        "kafka_oauth_ca_file": authority.file,
    }


def _with_tokens(settings: Settings, authority: Authority, openid: Provider) -> Change:
    # Kafka lets a listener also sign in itself, with a token that it makes. No other broker sees the token.
    options = (
        f'unsecuredLoginStringClaim_sub="broker" ssl.truststore.type="PEM" ssl.truststore.location="{authority.file}"'
    )
    listener = "listener.name.client"
    more = {
        f"{listener}.sasl.enabled.mechanisms": f"{settings.kafka_mechanism},OAUTHBEARER",
        f"{listener}.oauthbearer.sasl.jaas.config": f"{_OAUTH}.OAuthBearerLoginModule required {options};",
        f"{listener}.oauthbearer.sasl.server.callback.handler.class": f"{_OAUTH}.OAuthBearerValidatorCallbackHandler",
        "sasl.oauthbearer.jwks.endpoint.url": openid.keys_url,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": openid.address,
        "sasl.oauthbearer.clock.skew.seconds": 0,
        "connections.max.reauth.ms": 3_600_000,  # or the end of the token, if it is earlier
        "super.users": f"User:{settings.kafka_user};User:controller;User:{CLIENT}",
    }
    lines = "".join(f"{name}={value}\n" for name, value in more.items())
    return lambda text: text + lines  # the last line of a name counts
