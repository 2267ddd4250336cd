"""The withdrawal of the states on which commands are decided, because what they were made from changes.

States are made from the code of their fold, the topic, the reading of the event type, the accepted cuts of the log, and
what no erasure covers. The transaction that changes one of them withdraws the states. Each decision compares the
generation in its own transaction, so no decision after the commit uses states of a former origin.

Withdrawn states have no positions, and no code, so that a reader of an earlier release makes them again too. The reader
of the fold deletes them in portions before it begins again.
"""

from collections.abc import Collection, Mapping

from truelog.storage.database import Connection

# Decisions lock generations in share mode, and row locks in share mode may hold up a change for ever. Later decisions
# wait for the lock of the table. It is held only until the transaction ends, in which no state is deleted.
LOCK = "LOCK TABLE truelog.command_fold IN EXCLUSIVE MODE"


def withdraw(connection: Connection, events: Collection[str]) -> None:
    """Withdraw the states of these event types, as part of the transaction that changes what they are made from."""
    names = list(events)
    with connection.transaction():
        connection.execute(LOCK)
        connection.execute(
            "UPDATE truelog.command_fold SET generation = gen_random_uuid(), code = '' WHERE event = ANY(%s)", (names,)
        )
        connection.execute("DELETE FROM truelog.command_position WHERE event = ANY(%s)", (names,))


def folded(connection: Connection, topics: Mapping[str, str]) -> set[str]:
    """The topics from which states are made, in the order of a key's events. `topics` has their names by their ids."""
    rows = connection.execute("SELECT topic_id FROM truelog.command_fold WHERE topic_id = ANY(%s)", (list(topics),))
    return {topics[topic_id] for (topic_id,) in rows}
