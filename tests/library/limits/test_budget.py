"""Budgets never allow more than their burst and their rate, and take a bounded memory."""

from hypothesis import given
from hypothesis import strategies as st

from truelog.limits.budget import Budgets

steps = st.lists(st.tuples(st.floats(0, 10), st.floats(0, 20)), max_size=30)


@given(steps, st.floats(0.1, 5), st.floats(1, 20))
def test_nobody_spends_more_than_burst_and_rate(taken: list[tuple[float, float]], rate: float, burst: float) -> None:
    now = spent = 0.0
    budgets = Budgets(rate, burst, lambda: now)
    for pause, amount in taken:
        now += pause
        if not (seconds := budgets.take("a", amount)):
            spent += amount
        assert spent <= burst + rate * now + 1e-6
        if seconds and amount <= burst:
            now += seconds
            assert budgets.take("a", amount) == 0
            spent += amount


def test_the_first_of_too_many_budgets_is_forgotten() -> None:
    budgets = Budgets(1.0, 1.0, lambda: 0.0, names=2)
    for name in "abc":
        assert budgets.take(name, 1.0) == 0
    assert [budgets.take(name, 1.0) for name in "cba"] == [1, 1, 0]


def test_names_that_were_refused_are_forgotten_too() -> None:
    budgets = Budgets(1.0, 1.0, lambda: 0.0, names=2)
    assert [budgets.take(name, 2.0) for name in "abcd"] == [1] * 4
    assert list(budgets._budgets) == ["c", "d"]
