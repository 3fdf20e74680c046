"""How many pods are bound at once: as many as keep a binding near its goal, never fewer than some and never more than many."""

import pytest

from dray.scheduler.service import BINDING_GOAL_S, FEWEST_BINDINGS, MOST_BINDINGS, BindingLimit

QUICK, SLOW = BINDING_GOAL_S / 2, BINDING_GOAL_S * 2
# So many bindings take the limit from one end to the other.
ALL_THE_WAY = int((MOST_BINDINGS - FEWEST_BINDINGS) / BindingLimit.STEP)


def a_limit(*, after):
    limit = BindingLimit()
    for seconds in after:
        limit.took(seconds)
    return limit


def test_a_scheduler_that_has_just_started_binds_many():
    assert BindingLimit().most_bindings == MOST_BINDINGS


@pytest.mark.parametrize("slow", [ALL_THE_WAY - 1, ALL_THE_WAY, 10 * ALL_THE_WAY])
def test_slow_bindings_lower_the_limit_to_its_least(slow):
    limit = a_limit(after=[SLOW] * slow)
    assert limit.most_bindings == FEWEST_BINDINGS
    assert limit.most_bindings < a_limit(after=[SLOW] * (ALL_THE_WAY // 2)).most_bindings < MOST_BINDINGS


def test_quick_bindings_raise_it_again_however_long_they_were_slow():
    limit = a_limit(after=[SLOW] * 10 * ALL_THE_WAY + [QUICK] * ALL_THE_WAY)
    assert limit.most_bindings == MOST_BINDINGS
    limit.took(QUICK)
    assert limit.most_bindings == MOST_BINDINGS


def test_it_settles_where_as_many_bindings_are_quick_as_slow():
    """A server that serves one binding in 2 ms, so that each takes 2 ms for every one that is under way."""
    limit = BindingLimit()
    for _ in range(10 * ALL_THE_WAY):
        limit.took(0.002 * limit.most_bindings)
    assert limit.most_bindings == pytest.approx(BINDING_GOAL_S / 0.002, abs=1)
