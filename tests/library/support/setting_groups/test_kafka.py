"""All kinds of Kafka clients connect alike: with TLS and the same CA, or without."""

from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from pydantic import SecretStr

from tests.deadline import deadline, until
from tests.library.support.setting_groups.conftest import Chosen
from tests.library.support.setting_groups.starting_broker import TOPIC, StartingBroker
from truelog.support.errors import NotSetUp, ServiceDown
from truelog.support.settings import KafkaUser, jaas


def test_without_tls_no_client_has_certificates(chosen: Chosen) -> None:
    settings = chosen()
    options = [*settings.kafka(), *settings.connect_kafka(), *settings.spark_kafka()]
    assert not [each for each in options if "ssl" in each]
    assert settings.kafka() == {
        "bootstrap.servers": "kafka-1.example:9094,kafka-2.example:9094",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "truelog",
        "sasl.password": "of-kafka",
        "metadata.recovery.rebootstrap.trigger.ms": 10_000,
    }


def test_a_client_connects_again_after_a_broker_that_knew_of_none(chosen: Chosen) -> None:
    """As a broker that starts. Later releases may stay away for ever, if connections have ended at a bad moment."""
    with StartingBroker() as broker:
        options = {**chosen(kafka_bootstrap=broker.address, kafka_protocol="PLAINTEXT").kafka(), "log_level": 0}
        clients = [AdminClient(options) for _ in range(5)]
        for known, ends in (([1], False), ([1], True), ([], False)):
            broker.known, broker.ends_connections = known, ends
            broker.disconnect()
            for client in clients * 10:
                with suppress(KafkaException):
                    client.list_topics(TOPIC, timeout=0.05)
        broker.known = [1]

        def connected() -> None:
            try:
                assert all(client.list_topics(TOPIC, timeout=deadline(1)).brokers for client in clients)
            except KafkaException as error:
                raise ServiceDown(str(error)) from error

        until(connected, 30, "the clients to find the broker again")


@pytest.mark.parametrize("protocol", ["SASL_SSL", "SSL"])
def test_with_tls_each_client_trusts_the_same_ca(chosen: Chosen, ca: Path, protocol: str) -> None:
    settings = chosen(kafka_protocol=protocol, kafka_ca_file=ca)
    assert {settings.kafka(user)["ssl.ca.location"] for user in KafkaUser} == {str(ca)}
    java = {"security.protocol": protocol, "ssl.truststore.type": "PEM", "ssl.truststore.location": str(ca)}
    assert settings.connect_kafka().items() >= java.items()
    assert settings.spark_kafka().items() >= {f"kafka.{name}": value for name, value in java.items()}.items()


def test_without_a_ca_each_client_trusts_what_it_does_by_default(chosen: Chosen) -> None:
    settings = chosen(kafka_protocol="sasl_ssl")  # as librdkafka accepts it, but not Java
    for options in (settings.kafka(), settings.connect_kafka(), settings.spark_kafka()):
        assert [each for each in options if "ssl." in each] == []
        assert "SASL_SSL" in options.values()


def test_each_bootstrap_server_has_a_host_and_a_port(chosen: Chosen) -> None:
    settings = chosen(kafka_bootstrap="kafka.example:1, [::1]:2,SASL_SSL://broker,[::1],")
    assert settings.kafka_servers == [("kafka.example", 1), ("::1", 2), ("broker", 9092), ("::1", 9092)]
    assert settings.kafka()["bootstrap.servers"] == "kafka.example:1,[::1]:2,broker:9092,[::1]:9092"


@pytest.mark.parametrize("value", ["", "broker:", "broker:port", "::1", "http://broker/path"])
def test_an_unclear_bootstrap_server_is_refused(chosen: Chosen, value: str) -> None:
    with pytest.raises(NotSetUp, match=r"kafka_bootstrap.*name servers as host:port"):
        chosen(kafka_bootstrap=value)


def test_a_password_may_contain_quotes(chosen: Chosen) -> None:
    assert jaas("PLAIN", "me", 'a"b\\c').endswith(r'username="me" password="a\"b\\c";')
    odd = chosen(kafka_connect_password=SecretStr('"; rest="'))
    assert odd.connect_kafka()["sasl.jaas.config"].endswith(r'username="truelog-connect" password="\"; rest=\"";')


@pytest.mark.parametrize(
    ("setting", "value", "possible"),
    [("kafka_mechanism", "GSSAPI", "SCRAM-SHA-512"), ("kafka_protocol", "SASL_TLS", "SASL_SSL")],
)
def test_what_clients_cannot_do_is_refused_at_once(chosen: Chosen, setting: str, value: str, possible: str) -> None:
    with pytest.raises(NotSetUp, match=f"{setting}.*{possible}"):
        chosen(**{setting: value})
