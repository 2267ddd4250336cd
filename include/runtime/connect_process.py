"""`python -m runtime.connect_process` becomes Connect's Java process, with the connectors whose files are in the home.

Connect itself forgets its connectors when it ends, and the supervisor starts it again. Tables whose offsets are lost
begin another epoch before. If that needs a service that does not answer, the start waits for it.
"""

import os
from functools import partial
from threading import Event

from runtime.kafka import LOGGING
from truelog.capture import connector, snapshot
from truelog.spark.java import java
from truelog.support.settings import Settings, default_home
from truelog.support.wait import outlast


def _command(settings: Settings) -> list[str]:
    home = connector.folder(settings)
    memory = ["-Xms64m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:+ExitOnOutOfMemoryError", "-Duser.timezone=UTC"]
    login = f"-Djava.security.auth.login.config={home / 'jaas.conf'}"
    logs = f"-Dlog4j2.configurationFile={LOGGING}"
    main = ["-cp", str(settings.jars_home / "connect" / "*"), "org.apache.kafka.connect.cli.ConnectStandalone"]
    files = [str(file) for file in sorted(connector.connectors(settings).glob("*.properties"))]
    allowed = settings.connect_java_options()
    return [java(settings), *memory, *allowed, login, logs, *main, str(home / "worker.properties"), *files]


if __name__ == "__main__":
    settings = Settings(home=default_home())
    outlast(partial(snapshot.begin_lost, settings), Event())
    command = _command(settings)
    os.execv(command[0], command)  # noqa: S606  Java takes the place of this process
