"""Metrics in the Prometheus text format."""

import io
import logging

import pytest

from dray.api.meta import ObjectMeta
from dray.api.resource import ResourceClaim
from dray.telemetry import Registry, VerboseLog, set_up_logging


def test_the_text_format():
    registry = Registry()
    registry.counter("b_total", "Things", ("kind",)).inc('a"\\\n', by=2)
    registry.gauge("a", "Level").set(1.5)
    registry.computed_gauge("c", "Now", lambda: [({"x": "1"}, 3), ({}, 4)])
    histogram = registry.histogram("d_seconds", "Time", buckets=(0.1, 1.0))
    for seconds in (0.05, 0.1, 0.5, 7):
        histogram.observe(seconds)
    assert registry.text() == (
        "# HELP a Level\n# TYPE a gauge\na 1.5\n"
        '# HELP b_total Things\n# TYPE b_total counter\nb_total{kind="a\\"\\\\\\n"} 2\n'
        '# HELP c Now\n# TYPE c gauge\nc{x="1"} 3\nc 4\n'
        "# HELP d_seconds Time\n# TYPE d_seconds histogram\n"
        'd_seconds_bucket{le="0.1"} 2\nd_seconds_bucket{le="1"} 3\nd_seconds_bucket{le="+Inf"} 4\n'
        "d_seconds_sum 7.65\nd_seconds_count 4\n"
    )


def test_a_name_has_one_meaning():
    registry = Registry()
    assert registry.counter("a", "x") is registry.counter("a", "x")
    with pytest.raises(AssertionError, match="already a counter"):
        registry.gauge("a", "x")
    with pytest.raises(AssertionError, match="already has labels"):
        registry.counter("a", "x", ("label",))


def test_counters_start_at_zero_only_without_labels():
    registry = Registry()
    registry.counter("a_total", "x")
    registry.counter("b_total", "x", ("l",))
    assert "a_total 0" in registry.text()
    assert "b_total{" not in registry.text()


def test_logging_follows_the_verbosity():
    logger = logging.getLogger("dray")
    handlers, level = logger.handlers[:], logger.level
    stream = io.StringIO()
    try:
        set_up_logging(0, stream)
        logging.getLogger("dray.x").debug("hidden")
        logging.getLogger("dray.x").info("shown")
        set_up_logging(4, stream)
        logging.getLogger("dray.x").debug("now shown")
    finally:
        logger.handlers[:] = handlers
        logger.setLevel(level)
    assert "hidden" not in stream.getvalue()
    assert "I dray.x: shown" in stream.getvalue()
    assert "now shown" in stream.getvalue()


@pytest.fixture
def shown():
    """What is logged at a verbosity; ends with the logger as it was."""
    logger = logging.getLogger("dray")
    handlers, level = logger.handlers[:], logger.level

    def at(verbosity: int) -> str:
        stream = io.StringIO()
        set_up_logging(verbosity, stream)
        said = VerboseLog("dray.x")
        claim = ResourceClaim(metadata=ObjectMeta(name="c", namespace="ns"))
        for wanted in (4, 5, 6, 7):
            said.say(wanted, f"at {wanted}", claim=claim, names=["a", 'b"'], count=2, is_new=True, late=lambda: "x")
        return stream.getvalue()

    yield at
    logger.handlers[:] = handlers
    logger.setLevel(level)


@pytest.mark.parametrize(("verbosity", "lines"), [(0, 0), (3, 0), (4, 1), (5, 2), (6, 3), (7, 4), (10, 4)])
def test_each_verbosity_shows_more(shown, verbosity, lines):
    assert shown(verbosity).count("at ") == lines


def test_facts_are_structured(shown):
    assert 'D dray.x: at 4 claim="ns/c" names=["a" "b\\""] count=2 is_new=true late="x"\n' in shown(4)


def test_facts_of_hidden_messages_are_not_worked_out(shown):
    def cost() -> str:
        raise AssertionError("nobody looks")

    shown(4)
    VerboseLog("dray.x").say(5, "hidden", fact=cost)
