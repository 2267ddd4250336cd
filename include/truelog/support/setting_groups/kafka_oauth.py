"""How clients of Kafka sign in with tokens of an OpenID provider (OAUTHBEARER, with client credentials)."""

import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import SecretStr, field_validator
from pydantic_settings import BaseSettings

from truelog.support.errors import NotSetUp
from truelog.support.setting_groups.certificates import named
from truelog.support.setting_groups.jaas import login

OAUTHBEARER = "OAUTHBEARER"
OAUTH_CA = "TRUELOG_KAFKA_OAUTH_CA_FILE"
_PACKAGE = "org.apache.kafka.common.security.oauthbearer"
_ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
_NEEDED = ("kafka_oauth_token_url", "kafka_oauth_client_id")  # a process that does not use Kafka has no secret
_URL = re.compile(r"https?://[^\s,@/?#]+(/[^\s,#]*)?")  # Java's list of allowed URLs is separated by commas


class KafkaOauthSettings(BaseSettings):
    """The platform as a client of an OpenID provider. Kafka's clients get their tokens and renew them themselves.

    All parts of the platform are this one client, because providers choose the names of clients. The environment of a
    process may name another client, which has fewer rights.
    """

    kafka_oauth_token_url: str = ""
    kafka_oauth_client_id: str = ""
    kafka_oauth_client_secret: SecretStr = SecretStr("")
    kafka_oauth_scope: str = ""
    kafka_oauth_ca_file: Path | None = None  # a PEM file with the provider's CA; what each client trusts by default

    @field_validator("kafka_oauth_token_url")
    @classmethod
    def _without_secrets(cls, value: str) -> str:
        """Refuse a URL with a password, because messages contain the URL."""
        if value and not _URL.fullmatch(value):
            raise ValueError("name the provider's token endpoint as https://host/path, without a user or a fragment")
        return value

    @property
    def kafka_oauth_server(self) -> tuple[str, int, bool]:
        """The host and the port of the token endpoint, and whether it is reached with TLS."""
        found = urlsplit(self.kafka_oauth_token_url)
        is_encrypted = found.scheme == "https"
        return found.hostname or "", found.port or (443 if is_encrypted else 80), is_encrypted

    @property
    def kafka_oauth_trust(self) -> str | None:
        """The file of the CA that clients trust at the token endpoint; None if each trusts what it does by default."""
        return named(self.kafka_oauth_ca_file, OAUTH_CA) if self.kafka_oauth_server[2] else None

    def _oauth_of_librdkafka(self) -> dict[str, str]:
        """How a client of librdkafka signs in. It trusts the system's certificates by default."""
        trust = self.kafka_oauth_trust
        return {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": self.kafka_oauth_token_url,
            "sasl.oauthbearer.client.id": self.kafka_oauth_client_id,
            "sasl.oauthbearer.client.secret": self._oauth_secret(),
            **({"sasl.oauthbearer.scope": self.kafka_oauth_scope} if self.kafka_oauth_scope else {}),
            **({"https.ca.location": trust} if trust else {}),
        }

    def _oauth_of_java(self) -> dict[str, str]:
        """How a Java client signs in.

        Kafka 4 also has properties for the client and its secret, but Spark's Kafka 3.9 knows the login's options only.
        """
        trust = self.kafka_oauth_trust
        options = {
            "clientId": self.kafka_oauth_client_id,
            "clientSecret": self._oauth_secret(),
            **({"scope": self.kafka_oauth_scope} if self.kafka_oauth_scope else {}),
            **({"ssl.truststore.type": "PEM", "ssl.truststore.location": trust} if trust else {}),
        }
        return {
            "sasl.jaas.config": login("oauthbearer.OAuthBearerLoginModule", options),
            "sasl.login.callback.handler.class": f"{_PACKAGE}.OAuthBearerLoginCallbackHandler",
            "sasl.oauthbearer.token.endpoint.url": self.kafka_oauth_token_url,
        }

    def _oauth_secret(self) -> str:
        if not self.kafka_oauth_client_secret:
            raise NotSetUp(f"{OAUTHBEARER} needs TRUELOG_KAFKA_OAUTH_CLIENT_SECRET, and this process has none")
        return self.kafka_oauth_client_secret.get_secret_value()

    def _allowed_in_java(self) -> list[str]:
        """The option with which a JVM of Kafka 4 may ask the token endpoint. Earlier versions need none."""
        return [f"-D{_ALLOWED_URLS}={self.kafka_oauth_token_url}"]


def missing_for_oauth(settings: Mapping[str, object]) -> list[str]:
    """The names of the missing settings without which there is no token, except the secret."""
    return [f"TRUELOG_{name.upper()}" for name in _NEEDED if not settings.get(name)]
