"""Kafka's clients sign in with tokens of an OpenID provider, which they renew themselves.

The broker validates each token with the provider's keys, and ends a connection when its token has expired.
"""

import shutil
import uuid
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import NewTopic
from pydantic import SecretStr
from pyspark.sql import SparkSession

from runtime import connect, kafka
from tests.beds.authority import Authority
from tests.beds.openid import CLIENT, Provider, provider
from tests.beds.own_kafka import kafka_with_openid
from tests.beds.own_stores import running
from tests.deadline import deadline, until
from tests.library.support.setting_groups.conftest import Chosen
from truelog.capture import connector, worker
from truelog.doctor import kafka as doctor
from truelog.doctor.kafka import KAFKA
from truelog.doctor.result import Outcome, Result
from truelog.log import topics
from truelog.log.kafka_producer import KafkaSender, OutgoingRecord, make_producer
from truelog.log.kafka_reader import open_reader
from truelog.support.errors import NotSetUp, ServiceDown
from truelog.support.settings import KafkaUser, Settings

SECRET = 'odd "secret\\ of a client'
GIVEN: dict[str, Any] = {
    "kafka_mechanism": "OAUTHBEARER",
    "kafka_protocol": "SASL_SSL",
    "kafka_oauth_token_url": "https://login.example/realms/data/token",
    "kafka_oauth_client_id": "truelog-platform",
    "kafka_oauth_client_secret": SecretStr(SECRET),
}
LIFE = 4.0  # seconds of a token


def test_each_kind_of_client_asks_the_same_provider(chosen: Chosen, ca: Path) -> None:
    settings = chosen(**GIVEN, kafka_oauth_scope="log.write log.read", kafka_oauth_ca_file=ca)
    python, spark, connect = settings.kafka(KafkaUser.TICKS), settings.spark_kafka(), settings.connect_kafka()
    assert python["sasl.oauthbearer.token.endpoint.url"] == GIVEN["kafka_oauth_token_url"]
    assert python["sasl.oauthbearer.client.secret"] == SECRET
    assert python["sasl.oauthbearer.scope"] == "log.write log.read"
    assert (python["https.ca.location"], "ssl.ca.location" in python) == (str(ca), False)
    login = connect["sasl.jaas.config"]
    assert login.startswith("org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required clientId=")
    assert r'clientSecret="odd \"secret\\ of a client" scope="log.write log.read"' in login
    assert f'ssl.truststore.type="PEM" ssl.truststore.location="{ca}";' in login
    assert spark.items() >= {f"kafka.{name}": value for name, value in connect.items()}.items()
    assert not [each for each in python if each in ("sasl.username", "sasl.password")]


def test_only_the_login_has_the_secret_and_nothing_prints_it(chosen: Chosen) -> None:
    settings = chosen(**GIVEN)
    assert SECRET not in f"{settings!r} {settings} {settings.connect_java_options()}"
    java = {name for name, value in settings.connect_kafka().items() if "secret" in value}
    assert java == {"sasl.jaas.config"}  # which Connect reads from a private file, and Spark does not show
    assert settings.connect_java_options() == [
        f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={GIVEN['kafka_oauth_token_url']}"
    ]
    assert chosen().connect_java_options() == []


def test_without_a_ca_each_client_trusts_what_it_does_by_default(chosen: Chosen, ca: Path) -> None:
    unencrypted = GIVEN | {"kafka_oauth_token_url": "http://127.0.0.1:8080/token", "kafka_oauth_ca_file": ca}
    for settings in (chosen(**GIVEN), chosen(**unencrypted)):
        assert "https.ca.location" not in settings.kafka()
        assert "truststore" not in settings.connect_kafka()["sasl.jaas.config"]


@pytest.mark.parametrize("name", ["kafka_oauth_token_url", "kafka_oauth_client_id"])
def test_a_missing_setting_is_named(chosen: Chosen, name: str) -> None:
    with pytest.raises(NotSetUp, match=f"kafka_mechanism .*OAUTHBEARER needs TRUELOG_{name.upper()}"):
        chosen(**{each: value for each, value in GIVEN.items() if each != name})


def test_a_process_that_does_not_use_kafka_needs_no_secret(chosen: Chosen) -> None:
    settings = chosen(**{each: value for each, value in GIVEN.items() if each != "kafka_oauth_client_secret"})
    for client in (settings.kafka, settings.spark_kafka):
        with pytest.raises(NotSetUp, match="OAUTHBEARER needs TRUELOG_KAFKA_OAUTH_CLIENT_SECRET"):
            client()


@pytest.mark.parametrize(
    "url", ["login.example/token", "ftp://login.example", "https://me:hunter2@login.example/token"]
)
def test_an_unclear_token_endpoint_is_refused_and_not_shown(chosen: Chosen, url: str) -> None:
    with pytest.raises(NotSetUp, match=r"kafka_oauth_token_url .*https://host/path") as refused:
        chosen(**GIVEN | {"kafka_oauth_token_url": url})
    assert "hunter2" not in str(refused.value)


def test_the_embedded_kafka_is_not_configured_for_tokens(settings: Settings) -> None:
    with pytest.raises(NotSetUp, match="OAUTHBEARER, which needs TRUELOG_STORES=own"):
        kafka.configure(settings.model_copy(update=GIVEN))


@pytest.fixture(scope="module")
def openid(authority: Authority) -> Iterator[Provider]:
    with provider(authority.identity().context(), LIFE) as made:
        yield made


@pytest.fixture(scope="module")
def own(settings: Settings, authority: Authority, openid: Provider) -> Iterator[Settings]:
    home = Path(mkdtemp(prefix="truelog-oauth-"))
    with kafka_with_openid(home, authority, openid) as reached:
        yield reached
    shutil.rmtree(home)


@pytest.fixture
def topic(own: Settings) -> str:
    name, broker = f"t{uuid.uuid4().hex[:8]}", topics.client(own, KafkaUser.ADMIN)
    made = NewTopic(name, 1, 1, config={"message.timestamp.type": "LogAppendTime"})
    broker.create_topics([made])[name].result(deadline(30))
    return name


@pytest.fixture
def wrong(own: Settings) -> Settings:
    return own.model_copy(update={"kafka_oauth_client_secret": SecretStr(SECRET)})


def send(producer: Producer, topic: str, value: bytes) -> None:
    producer.produce(topic, value)
    assert producer.flush(deadline(30)) == 0


def next_value(consumer: Consumer) -> bytes | str | None:
    """The value of the next record."""
    found: list[bytes | str | None] = []

    def received() -> None:
        message = consumer.poll(0.5)
        if message is None or message.error() is not None:
            raise ServiceDown("no record yet")
        found.append(message.value())

    until(received, 30, "the next record")
    return found[0]


def wait_for_tokens(openid: Provider, count: int) -> None:
    """Wait until the provider has issued so many more tokens."""
    before = len(openid.issued)

    def issued() -> None:
        if len(openid.issued) < before + count:
            raise ServiceDown(f"{len(openid.issued) - before} of {count} tokens")

    until(issued, 30, "new tokens")


@pytest.mark.nightly
def test_a_token_is_renewed_while_its_client_is_open(own: Settings, openid: Provider, topic: str) -> None:
    """On a busy machine, a client may be late, and sign in again."""
    producer, consumer = make_producer(own), open_reader(own)
    consumer.assign([TopicPartition(topic, 0, 0)])
    for value in (b"with the first token", b"with another"):
        send(producer, topic, value)
        assert next_value(consumer) == value
        wait_for_tokens(openid, 2 * 2)  # two of each client, so that the former token has expired
    consumer.close()
    assert {*openid.issued} == {CLIENT}


@pytest.mark.nightly
def test_without_a_new_token_the_broker_ends_the_connection(own: Settings, openid: Provider, topic: str) -> None:
    """The client tries again, so it goes on when the provider accepts its secret."""
    refused = list[KafkaError]()
    producer, secret = make_producer(own, refused.append), openid.secrets[CLIENT]
    send(producer, topic, b"with a token")
    openid.secrets[CLIENT] = "another"
    try:

        def is_refused() -> None:
            producer.produce(topic, b"later")
            if not producer.flush(deadline(1)):
                raise ServiceDown("the token has not expired yet")

        until(is_refused, 30, "the end of the token")
        assert KafkaError._AUTHENTICATION in {each.code() for each in refused}
    finally:
        openid.secrets[CLIENT] = secret
    assert producer.flush(deadline(40)) == 0


def test_spark_reads_with_tokens_that_it_renews(
    own: Settings, openid: Provider, topic: str, spark: SparkSession
) -> None:
    options = {**own.spark_kafka(), "subscribe": topic, "startingOffsets": "earliest"}
    texts = spark.readStream.format("kafka").options(**options).load().selectExpr("CAST(value AS STRING) AS value")
    query, producer = texts.writeStream.format("memory").queryName(topic).start(), make_producer(own)
    try:
        for count, value in enumerate((b"with the first token", b"with another"), 1):
            send(producer, topic, value)

            def is_read(count: int = count) -> None:
                assert query.isActive, query.exception()
                if spark.table(topic).count() < count:
                    raise ServiceDown("Spark has not read the record yet")

            until(is_read, 60, "the record in Spark")
            wait_for_tokens(openid, 3 * 2)  # the planner, the task's reader and the producer have clients
    finally:
        query.stop()


@pytest.mark.nightly
def test_connect_knows_its_cluster_and_its_process_shows_no_secret(own: Settings) -> None:
    connector.write_worker(own)
    with running(own.home, "connect", connect.SERVICE.command(own), None, connect.SERVICE.environment(own)) as process:

        def answers() -> None:
            assert process.poll() is None, (own.home / "connect.log").read_text()[-5_000:]
            if worker.ask(own, "GET", "/") is None:
                raise ServiceDown("it is starting")

        until(answers, 90, "Kafka Connect")
        assert worker.ask(own, "GET", "/")["kafka_cluster_id"]
        java = psutil.Process(process.pid)
        assert "java" in java.name()
        seen = f"{java.cmdline()} {java.environ()} {(own.home / 'connect.log').read_text()}"
    assert own.kafka_oauth_client_secret.get_secret_value() not in seen


def test_a_wrong_secret_is_refused_with_the_cure(
    own: Settings, wrong: Settings, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "_TIMEOUT", 2.0)  # all of it passes
    said = r"OAUTHBEARER token: .*invalid_client.*Check the TRUELOG_KAFKA_OAUTH_… settings"
    with pytest.raises(ServiceDown, match=said) as refused:
        kafka.ready(wrong)  # which `truelog up` asks first
    assert SECRET not in str(refused.value)
    with pytest.raises(ServiceDown, match=said):
        topics.end_offsets(wrong, [topic])
    with pytest.raises(ServiceDown, match="invalid_client"), KafkaSender(wrong, []) as sender:
        sender.send(OutgoingRecord(topic, "k", b"{}"))


def examined(settings: Settings, count: int) -> list[Result]:
    """The doctor's first results, which are about encryption and sign-in."""
    return list(islice(KAFKA.examine(settings), count))


def test_the_doctor_examines_the_provider_and_the_only_client(own: Settings) -> None:
    _, encryption, certificate, client = examined(own, 4)
    assert encryption.found.endswith(f"verified with {own.kafka_oauth_ca_file}")
    assert (certificate.outcome, client.outcome) == (Outcome.FINE, Outcome.FINE)
    assert (client.check, client.found) == (f"client {CLIENT}", "signs in; 1 broker")


def test_the_doctor_names_a_wrong_secret_and_a_wrong_ca(
    own: Settings, wrong: Settings, other_ca: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_SECONDS", 2.0)  # all of it passes
    refused = examined(wrong, 4)[3]
    assert (refused.outcome, "invalid_client" in refused.found) == (Outcome.FAILED, True)
    assert "the client's secret" in refused.cure
    stranger = own.model_copy(update={"kafka_oauth_ca_file": other_ca})
    assert "TRUELOG_KAFKA_OAUTH_CA_FILE" in examined(stranger, 2)[1].cure
    with pytest.raises(ServiceDown, match="Check the TRUELOG_KAFKA_OAUTH"):
        kafka.ready(stranger)
