"""Text can be read in both themes: contrast of every pair of colours that the page puts together."""

import re
from importlib import resources

import pytest

PAIRS = [
    ("text", "ground"),
    ("text", "surface"),
    ("text", "hover"),
    ("quiet", "ground"),
    ("quiet", "surface"),
    ("quiet", "raised"),
    ("quiet", "hover"),
    ("good", "good-ground"),
    ("warn", "warn-ground"),
    ("bad", "bad-ground"),
    ("calm", "calm-ground"),
    ("warn", "surface"),
    ("bad", "raised"),
]
# Not text: shapes against what is behind them.
SHAPES = [
    ("use", "surface"),
    ("sick", "surface"),
    ("line-strong", "surface"),
    ("focus", "surface"),
    ("focus", "ground"),
]


def colours() -> dict[str, tuple[str, str]]:
    text = (resources.files("dray.dashboard.assets") / "base.css").read_text()
    return {name: (light, dark) for name, light, dark in re.findall(r"--([\w-]+): light-dark\((#\w+), (#\w+)\)", text)}


def luminance(colour: str) -> float:
    digits = colour.lstrip("#")
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(("front", "back"), PAIRS)
def test_text_can_be_read(front: str, back: str, theme: int) -> None:
    known = colours()
    assert contrast(known[front][theme], known[back][theme]) >= 4.5


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(("front", "back"), SHAPES)
def test_shapes_can_be_seen(front: str, back: str, theme: int) -> None:
    known = colours()
    assert contrast(known[front][theme], known[back][theme]) >= (1.7 if front == "line-strong" else 3)
