"""Posts: likes, comments, shares and friends, in any order of events."""

from collections import Counter
from typing import Any

from tests.beds.lab import Lab
from tests.views.examples import Relations, Row, Rows, Sent, at, example, examples, sent
from tests.views.generated import last, logs_and_relations, of_owners
from tests.views.people import named
from truelog import View


def posted(post: str = "x1", author: str = "ann", time: str = "10:00:00", verb: str = "posted") -> Sent:
    return sent("post", post_id=post, author_id=author, verb=verb, text="hello", occurred_at=at(time))


def liked(target: str, person: str, time: str = "10:10:00", verb: str = "liked") -> Sent:
    return sent("like", target_id=target, person_id=person, verb=verb, occurred_at=at(time))


def commented(
    comment: str, time: str = "10:05:00", verb: str = "posted", post: str = "x1", person: str = "bob"
) -> Sent:
    fields = {"comment_id": comment, "post_id": post, "author_id": person, "text": f"comment {comment}"}
    return sent("comment", verb=verb, occurred_at=at(time), **fields)


def shared(share: str, post: str = "x1", time: str = "10:20:00", verb: str = "shared", person: str = "bob") -> Sent:
    return sent("share", share_id=share, post_id=post, person_id=person, verb=verb, occurred_at=at(time))


def befriended(one: str, other: str, time: str = "09:00:00", verb: str = "friended") -> Sent:
    return sent("friendship", person_id=one, friend_id=other, verb=verb, occurred_at=at(time))


def counts(rows: list[Row]) -> list[tuple[Any, ...]]:
    return [(row["post_id"], row["likes"], row["comments"], row["shares"]) for row in rows]


LIKED_TWICE = [posted(), liked("x1", "bob"), liked("x1", "bob", "10:11:00"), liked("x1", "eve")]


@examples(
    {
        "liked": ([*LIKED_TWICE, liked("x2", "bob")], [("x1", 2, 0, 0)]),
        "withdrawn": ([*LIKED_TWICE, liked("x1", "bob", "10:12:00", "unliked")], [("x1", 1, 0, 0)]),
    }
)
def test_a_person_s_like_counts_once_until_it_is_withdrawn(rows: Rows, expected: list[tuple[Any, ...]]) -> None:
    assert counts(rows) == expected


@example(
    [
        *(posted(), commented("c1"), commented("c2"), shared("s1"), shared("s2"), shared("s3", "x2")),
        *(commented("c1", "11:00:00", "deleted"), shared("s2", "x1", "11:00:00", "unshared")),
    ]
)
def test_comments_and_shares_count_until_they_are_deleted(rows: Rows) -> None:
    assert counts(rows) == [("x1", 0, 1, 1)]


@example([posted(), liked("x1", "bob"), posted("x2"), posted("x1", "ann", "11:00:00", "deleted")])
def test_a_deleted_post_vanishes_and_a_post_without_likes_is_shown(rows: Rows) -> None:
    assert counts(rows) == [("x2", 0, 0, 0)]


MINE = [posted("x1", "ann"), commented("c1"), shared("s1"), liked("x1", "bob")]


@examples(
    {
        "post deleted": ([*MINE, posted("x1", "eve", "11:00:00", "deleted")], None),
        "post taken over": ([*MINE, posted("x1", "eve", "11:00:00")], None),
        "post taken over before its time": ([*MINE, posted("x1", "eve", "08:00:00")], None),
        "comment deleted": ([*MINE, commented("c1", "11:00:00", "deleted", person="eve")], None),
        "comment moved away": ([*MINE, commented("c1", "11:00:00", post="x2", person="eve")], None),
        "share withdrawn": ([*MINE, shared("s1", "x1", "11:00:00", "unshared", person="eve")], None),
        "share moved away": ([*MINE, shared("s1", "x2", "11:00:00", person="eve")], None),
    },
    in_order=True,
)
def test_another_person_changes_no_post_comment_or_share(relations: Relations, expected: None) -> None:
    assert counts(relations[None]) == [("x1", 1, 1, 1)]
    assert [row["author_id"] for row in relations["summary"]] == ["ann"]
    assert [(row["comment_id"], row["author_id"]) for row in relations["top_comments"]] == [("c1", "bob")]


@example(
    [
        posted(),
        *(commented(f"c{n}", f"10:0{n}:00") for n in range(1, 7)),
        *(liked("c1", "ann"), liked("c1", "bob"), liked("c2", "ann"), liked("c6", "eve")),
        *(liked("c6", "eve", "10:30:00", "unliked"), named("ann", "Ann")),
    ]
)
def test_a_post_shows_its_author_and_its_four_best_comments(relations: Relations) -> None:
    [post] = relations["summary"]
    assert (post["author"], post["photo"], post["comments"]) == ("Ann", "https://photos.example/Ann", 6)
    best = sorted(relations["top_comments"], key=lambda row: (-row["likes"], -row["commented_at"].timestamp()))
    assert [(row["comment_id"], row["likes"]) for row in best] == [("c1", 2), ("c2", 1), ("c6", 0), ("c5", 0)]


@example(
    [
        posted(),
        *(befriended("ann", friend) for friend in ("bob", "cid", "dan", "eve")),
        *(befriended("eve", "bob"), befriended("dan", "eve"), befriended("cid", "dan"), befriended("bob", "zoe")),
        *(liked("x1", person) for person in ("bob", "cid", "dan", "eve", "stranger")),
        befriended("eve", "bob", "12:00:00", "unfriended"),
    ]
)
def test_the_closest_likers_are_friends_with_many_friends_in_common(relations: Relations) -> None:
    """Ann's friends are bob, cid, dan and eve. Bob and dan are friends of eve, dan and cid are friends."""
    found = [row for row in relations["closest_likers"] if row["reader_id"] == "ann"]
    ranked = sorted((-row["mutual_friends"], row["liker_id"]) for row in found)
    assert ranked == [(-2, "dan"), (-1, "cid"), (-1, "eve")]


def test_generated_logs_give_the_counts_of_a_naive_loop(lab: Lab, name: str, view: View) -> None:
    interesting = 0
    for events, found in logs_and_relations(lab, name, view):
        rows = counts(found[None])
        assert rows == sorted(naive_counts(events))
        interesting += sum(likes + comments + shares for _, likes, comments, shares in rows)
    assert interesting > 5, "the logs hold too few likes, comments and shares"


def naive_counts(events: list[Row]) -> list[tuple[str, int, int, int]]:
    gone = {"deleted", "unliked", "unshared"}
    for owned in (
        ("post", "post_id", "author_id", "posted"),
        ("comment", "comment_id", "author_id", "posted"),
        ("share", "share_id", "person_id", "shared"),
    ):
        events = of_owners(events, *owned)
    alive = {
        topic: {key: row for key, row in last(events, topic, *keys).items() if row["verb"] not in gone}
        for topic, *keys in (
            ("post", "post_id"),
            ("like", "target_id", "person_id"),
            ("comment", "comment_id"),
            ("share", "share_id"),
        )
    }
    likes = Counter(target for target, _ in alive["like"])
    comments = Counter(row["post_id"] for row in alive["comment"].values())
    shares = Counter(row["post_id"] for row in alive["share"].values())
    return [(post, likes[post], comments[post], shares[post]) for (post,) in alive["post"]]
