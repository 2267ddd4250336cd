"""People search: full-text search in the profiles, ranked, with profiles that change and close."""

import uuid
from typing import Any

from psycopg import sql

from tests.beds.lab import Lab
from tests.views.examples import Relations, Row, Rows, Sent, at, example, sent
from tests.views.generated import last, logs_and_rows
from truelog import View
from truelog.tables import deploy as table


def profiled(person: str, name: str, time: str = "10:00:00", verb: str = "changed", **fields: Any) -> Sent:
    return sent("profile", person_id=person, name=name, verb=verb, occurred_at=at(time), **fields)


PEOPLE = [
    profiled("p1", "Ann O'Reilly", headline="Data engineer", company="Initech", keywords="Kafka, streams"),
    profiled("p2", "Bob Engineer", headline="Author of books about databases", company="O'Reilly Media"),
    profiled("p3", "Eve Smith", headline="Designs engines", company="Initech"),
]
OTHERS = [
    profiled("q1", "李小龙", company="E\u0301cole"),
    profiled("q2", "Ünïcode O\u2019Reilly"),
]


def found(lab: Lab, documents: list[Row], query: str) -> list[str]:
    """The people whose documents match, best first, by PostgreSQL's own functions."""
    ranked = []
    for row in documents:
        select = sql.SQL(
            "SELECT d @@ q, ts_rank(d, q) FROM (SELECT %s::tsvector AS d, truelog.word_query(%s) AS q) AS t"
        )
        [(is_match, rank)] = lab.connection.execute(select, (row["document"], query)).fetchall()
        ranked += [(-float(str(rank)), row["person_id"])] if is_match else []
    return [person for _, person in sorted(ranked)]


@example(PEOPLE)
def test_people_are_found_by_their_words_and_ranked(relations: Relations, lab: Lab) -> None:
    documents = relations["documents"]
    assert found(lab, documents, "author") == ["p2"]
    assert found(lab, documents, "o'reilly") == ["p1", "p2"]
    assert found(lab, documents, "initech -kafka") == ["p3"]
    assert found(lab, documents, "the engineers") == ["p2", "p1", "p3"], "the name weighs most"


@example(OTHERS)
def test_words_are_found_as_in_all_searches(relations: Relations, lab: Lab) -> None:
    documents = relations["documents"]
    assert found(lab, documents, "小龙") == ["q1"]
    assert found(lab, documents, "école") == found(lab, documents, "ECOLE") == ["q1"]
    assert found(lab, documents, "unicode o'reilly") == ["q2"]


@example([*PEOPLE, profiled("p3", "Eve Smith", "11:00:00", headline="Writes poems")])
def test_a_changed_profile_is_found_by_its_new_words_only(relations: Relations, lab: Lab) -> None:
    documents = relations["documents"]
    assert found(lab, documents, "engines") == ["p2", "p1"]
    assert found(lab, documents, "poem") == ["p3"]


@example([*PEOPLE, profiled("p1", "Ann", "12:00:00", "closed"), profiled("p1", "Ann", "11:00:00")])
def test_a_closed_profile_is_not_shown(rows: Rows) -> None:
    assert [row["person_id"] for row in rows] == ["p2", "p3"]


def test_a_search_looks_matches_up_by_index(lab: Lab, view: View) -> None:
    name = f"people_{uuid.uuid4().hex[:8]}"
    table.deploy_table(lab.connection, lab.compiled(name, view))
    query = "EXPLAIN SELECT person_id FROM {} WHERE document @@ truelog.word_query('data')"
    with lab.connection.transaction():
        lab.connection.execute("SET LOCAL enable_seqscan = off")
        plan = lab.connection.execute(sql.SQL(query).format(sql.Identifier("views", f"{name}_documents"))).fetchall()
    assert sum(f"Bitmap Index Scan on {name}_" in str(line) for line in plan) == 2, "one for each layer"


def test_generated_logs_give_the_profiles_of_a_naive_loop(lab: Lab, name: str, view: View) -> None:
    for events, rows in logs_and_rows(lab, name, view):
        profiles = last(events, "profile", "person_id")
        expected = {person: each["name"] for (person,), each in profiles.items() if each["verb"] != "closed"}
        assert {row["person_id"]: row["name"] for row in rows} == expected
