"""Metrics in the Prometheus text format."""

import io
import logging

import pytest

from dray.telemetry import Registry, set_up_logging


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
