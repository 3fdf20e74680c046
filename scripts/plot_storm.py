"""From the results of `benchmarks/storm.py` to an SVG: latency, lag, pods and memory over time.

python scripts/plot_storm.py storm.json docs/images/storm.svg
"""

import json
import sys
from pathlib import Path
from typing import Any

WIDTH, HEIGHT, LEFT, TOP, GAP = 760, 150, 70, 26, 52
COLOURS = ("#2563eb", "#d97706", "#059669", "#7c3aed")
Lines = dict[str, list[float]]


def panel(title: str, unit: str, times: list[float], lines: Lines, top: int) -> list[str]:
    """One plot: a line per name over the same time axis."""
    most = max((max(values) for values in lines.values()), default=1.0) or 1.0
    last = times[-1]
    out = [f'<text x="{LEFT}" y="{top - 8}" font-weight="600">{title}</text>']
    for share in (0.0, 0.5, 1.0):
        y = top + HEIGHT - share * HEIGHT
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - 20}" y1="{y:.1f}" y2="{y:.1f}" stroke="#d4d4d8"/>')
        out.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{share * most:,.0f} {unit}</text>')
    for colour, values in zip(COLOURS, lines.values(), strict=False):
        points = " ".join(
            f"{LEFT + (WIDTH - 20 - LEFT) * time / last:.1f},{top + HEIGHT - HEIGHT * value / most:.1f}"
            for time, value in zip(times, values, strict=True)
        )
        out.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="{points}"/>')
    for index, (colour, name) in enumerate(zip(COLOURS, lines, strict=False)):
        x = WIDTH - 20 - 150 * (len(lines) - index)
        out.append(f'<rect x="{x}" y="{top - 17}" width="10" height="10" fill="{colour}"/>')
        out.append(f'<text x="{x + 15}" y="{top - 8}">{name}</text>')
    return out


def plot(result: dict[str, Any]) -> str:
    windows = result["windows"]
    times = [each["at_s"] for each in windows]
    parts = list(windows[0]["memory_mb"])
    panels: list[tuple[str, str, Lines]] = [
        (
            "Time to create a pod",
            "ms",
            {"median": [w["create_p50_ms"] for w in windows], "p99": [w["create_p99_ms"] for w in windows]},
        ),
        ("From the request to the watcher", "ms", {"p99": [w["watch_lag_p99_ms"] for w in windows]}),
        (
            "Pods per window of five seconds",
            "",
            {"created": [w["created"] for w in windows], "deleted": [w["deleted"] for w in windows]},
        ),
        ("Memory", "MB", {part: [w["memory_mb"][part] for w in windows] for part in parts}),
    ]
    height = TOP + len(panels) * (HEIGHT + GAP)
    body = [
        line
        for index, row in enumerate(panels)
        for line in panel(row[0], row[1], times, row[2], TOP + index * (HEIGHT + GAP))
    ]
    axis = f'<text x="{WIDTH - 20}" y="{height - 28}" text-anchor="end">{times[-1]:,.0f} seconds</text>'
    style = 'font-family="system-ui, sans-serif" font-size="12" fill="#3f3f46"'
    background = f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" {style}>{background}{"".join(body)}{axis}</svg>\n'


def main() -> None:
    source, target = Path(sys.argv[1]), Path(sys.argv[2])
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(plot(json.loads(source.read_text())))


if __name__ == "__main__":
    main()
