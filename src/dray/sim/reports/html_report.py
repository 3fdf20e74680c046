"""The report of `dray simulate`: one HTML file with its plots inside, readable without a network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape
from typing import Any

from dray.accounting import NodeLedger, as_quantity
from dray.accounting.ledger_rows import Line, lines_of
from dray.api.dra.device_use import NONE_COUNTED, ClusterUse, Use, UseCounts
from dray.explain.reason_codes import CODES
from dray.sim.reports.plots import (
    Bar,
    Part,
    Square,
    bars,
    columns_plot,
    distribution,
    square_map,
)
from dray.sim.reports.simulation_result import ReportHeader, autoscale_lines, changed_pods, diff_rows
from dray.sim.simulation import Simulation
from dray.visible_text import visible

Document = dict[str, Any]
MOST_NODES = 40
MOST_SQUARES = 2500
MOST_PODS = 500
MOST_REASONS = 20
MOST_WAITING = 200


def report_html(simulation: Simulation, document: Document, header: ReportHeader) -> str:
    """The question and what it was asked of, the answer in figures, the pods that keep waiting; then everything else."""
    summary = document["summary"]
    use = simulation.device_use()
    sections = [
        ("Pods that keep waiting", _waiting(document["pods"], summary["waitingByReason"])),
        *([("Difference", _difference(document["diff"]))] if "diff" in document else []),
        ("Device use", _use_by_driver(use) + _legend() + square_map(_squares(use))),
        ("Fragmentation", _fragmentation(use)),
        ("Ledger by node", _ledgers(simulation.ledgers())),
        ("All pods", _pods(document["pods"])),
    ]
    body = "".join(f"<section><h2>{escape(title)}</h2>{content}</section>" for title, content in sections)
    return visible(
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>dray simulate</title><style>{_STYLE}</style></head><body>"
        f"<h1>{escape(header.question)}</h1>{_asked(header, summary)}{_numbers(summary)}{body}</body></html>\n"
    )


def _asked(header: ReportHeader, summary: Document) -> str:
    facts = [
        ("read", ", ".join(header.files)),
        ("policy", header.policy),
        ("date", f"{header.at:%Y-%m-%d %H:%M} UTC"),
        ("waiting pods", str(summary["pods"])),
    ]
    if summary["leftOut"]:
        facts.append(("left out", f"{len(summary['leftOut'])} objects that are not valid"))
    rows = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts)
    said = (
        "".join(f"<p>{escape(line)}</p>" for line in autoscale_lines(summary["autoscale"]))
        if "autoscale" in summary
        else ""
    )
    return f"<dl class='asked'>{rows}</dl>{said}"


def _waiting(pods: list[Document], by_reason: dict[str, int]) -> str:
    waiting = [row for row in pods if row["outcome"] != "scheduled"]
    if not waiting:
        return '<p class="none">no pod waits</p>'
    shown = list(by_reason.items())[:MOST_REASONS]
    plot = bars([Bar(code, (Part(count, "waiting", _meaning(code)),), str(count)) for code, count in shown])
    rows = "".join(
        f"<li><b>{escape(row['namespace'])}/{escape(row['name'])}</b> <code>{escape(row['code'])}</code>"
        f"<span>{escape(row['message'])}</span></li>"
        for row in waiting[:MOST_WAITING]
    )
    more = f"<p>and {len(waiting) - MOST_WAITING} more</p>" if len(waiting) > MOST_WAITING else ""
    return f"{plot}<ul class='waiting'>{rows}</ul>{more}"


def _meaning(code: str) -> str:
    known = CODES.get(code)
    return known.meaning if known is not None else code


def _difference(diff: Document) -> str:
    names = (diff["from"]["name"], diff["to"]["name"])
    totals = _table(("", *names), diff_rows(diff))
    changed = changed_pods(diff)
    if not changed:
        return f"{totals}<p>Every pod is where it was.</p>"
    more = f"<p>and {len(changed) - MOST_PODS} more</p>" if len(changed) > MOST_PODS else ""
    return f"{totals}<h3>Pods that change</h3>{_table(('pod', *names), changed[:MOST_PODS])}{more}"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in header)
    body = "".join(f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in row)}</tr>" for row in rows)
    return f"<div class='wide'><table><tr>{head}</tr>{body}</table></div>"


def _squares(use: ClusterUse) -> list[Square]:
    places: dict[str, UseCounts] = {}
    for driver in use.by_driver():
        for place, counts in use.by_place(driver).items():
            places[place] = places.get(place, NONE_COUNTED) + counts
    found = [Square(_level(counts), f"{place}: {counts.words()}") for place, counts in places.items()]
    return found[:MOST_SQUARES]


def _level(counts: UseCounts) -> int:
    return 0 if not counts.parts else max(1, int(4 * counts.parts / counts.all))


_CSS = {Use.USED: "taken", Use.PARTLY: "partly", Use.BLOCKED: "blocked", Use.TAINTED: "tainted", Use.FREE: "free"}


def _use_by_driver(use: ClusterUse) -> str:
    rows = []
    for driver, counts in sorted(use.by_driver().items()):
        if counts.all:
            parts = [Part(counts.of(kind) / counts.all, css, f"{counts.of(kind)} {kind}") for kind, css in _CSS.items()]
            rows.append(Bar(driver, tuple(parts), counts.words()))
    keys = "".join(f"<span><i class='{css}'></i>{kind}</span>" for kind, css in _CSS.items())
    return f"{bars(rows, 1.0)}<p class='legend'>{keys}</p>"


def _legend() -> str:
    words = ("free", "up to half", "half", "most", "full")
    cells = "".join(f"<span><i class='level{level}'></i>{word}</span>" for level, word in enumerate(words))
    return f"<p class='legend'>each square is a node: {cells}</p>"


def _fragmentation(use: ClusterUse) -> str:
    """How many nodes have how many devices left: what large requests need is many on one node."""
    out = []
    for driver, counts in sorted(use.by_driver().items()):
        left = Counter(each.free for each in use.by_place(driver).values())
        partly = (
            f" Of {counts.partly} more, partly used, {counts.left_in_parts:.1f} devices' worth is left."
            if counts.partly
            else ""
        )
        out.append(
            f"<h3>{escape(driver)}</h3><p>{_plural(counts.free, 'device is', 'devices are')} free on "
            f"{_plural(sum(left.values()) - left.get(0, 0), 'node', 'nodes')}, at most {max(left, default=0)} on one.{partly} "
            f"Nodes by number of free devices:</p>{columns_plot(distribution(left))}"
        )
    return "".join(out) or '<p class="none">no devices are published</p>'


def _plural(count: int, one: str, many: str) -> str:
    return f"{count} {one}" if count == 1 else f"{count} {many}"


def _ledgers(ledgers: list[NodeLedger]) -> str:
    out = []
    for resource in ("cpu", "memory"):
        lines = [(ledger.name, line) for ledger in ledgers for line in lines_of(ledger) if line.resource == resource]
        lines.sort(key=lambda row: -(row[1].requested / row[1].allocatable if row[1].allocatable else 0))
        shown = [Bar(name, _shares(line), _ledger_text(line)) for name, line in lines[:MOST_NODES]]
        more = f" ({MOST_NODES} fullest of {len(lines)})" if len(lines) > MOST_NODES else ""
        out.append(f"<h3>{resource}{more}</h3>{bars(shown, 1.0)}")
    legend = "<span><i class='spec'></i>by spec</span><span><i class='claims'></i>by claims</span>"
    return f"<p class='legend'>{legend}</p>{''.join(out)}"


def _shares(line: Line) -> tuple[Part, ...]:
    whole = line.allocatable or 1
    return (
        Part(line.by_spec / whole, "spec", f"by spec: {as_quantity(line.resource, line.by_spec)}"),
        Part(line.by_claims / whole, "claims", f"by claims: {as_quantity(line.resource, line.by_claims)}"),
    )


def _ledger_text(line: Line) -> str:
    requested, allocatable = (as_quantity(line.resource, amount) for amount in (line.requested, line.allocatable))
    return f"{requested} of {allocatable}"


def _pods(pods: list[Document]) -> str:
    rows = "".join(
        f"<tr class='{escape(row['outcome'])}'><td>{escape(row['namespace'])}/{escape(row['name'])}</td>"
        f"<td>{escape(row['outcome'])}</td><td>{escape(row['node'])}</td><td>{escape(row['code'])}</td></tr>"
        for row in pods[:MOST_PODS]
    )
    more = f"<p>and {len(pods) - MOST_PODS} more</p>" if len(pods) > MOST_PODS else ""
    return f"<div class='wide'><table><tr><th>pod</th><th>outcome</th><th>node</th><th>reason</th></tr>{rows}</table></div>{more}"


def _numbers(summary: Document) -> str:
    facts = [
        ("waiting pods", summary["pods"]),
        ("scheduled", summary["scheduled"]),
        ("keep waiting", summary["unschedulable"] + summary["errors"]),
        ("nodes", summary["nodes"]),
        ("devices used", f"{summary['devices']['used']} of {summary['devices']['all']}"),
        ("partly used", summary["devices"]["partlyUsed"]),
        ("devices free", summary["devices"]["free"]),
        ("preempted", len(summary["preempted"])),
    ]
    facts += [(f"added {row['template']}", row["count"]) for row in summary["addedNodes"]]
    cells = "".join(f"<div><b>{escape(str(value))}</b><span>{escape(name)}</span></div>" for name, value in facts)
    return f"<div class='facts'>{cells}</div>"


_STYLE = """
:root{--ink:#1c2430;--soft:#5b6675;--page:#fff;--rail:#eceff3;--taken:#2f6fde;--free:#c8d6ef;--claims:#d9822b;--wait:#c23b4b;
--blocked:#8b97a8;--level1:#9dc0f5;--level2:#6a9bea;--level3:#3f78d8;--level4:#1f4fa3}
@media(prefers-color-scheme:dark){:root{--ink:#e7ebf1;--soft:#9aa6b6;--page:#12161c;--rail:#242b35;--taken:#6ea0ff;
--free:#2c3a55;--claims:#f0a75a;--wait:#f0717f;--blocked:#566274;--level1:#24406f;--level2:#3763ad;--level3:#5b8fe8;--level4:#a9c8ff}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--page);max-width:900px;margin:2rem auto;padding:0 1rem}
h1{font-size:1.4rem;overflow-wrap:anywhere}.asked{display:flex;flex-wrap:wrap;gap:.3rem 1.5rem;margin:.5rem 0 1.2rem;font-size:13px}
.asked div{display:flex;gap:.4rem}.asked dt{color:var(--soft)}.asked dd{margin:0;overflow-wrap:anywhere}
.waiting{padding:0;list-style:none;font-size:13px}.waiting li{padding:.4rem 0;border-bottom:1px solid var(--rail);overflow-wrap:anywhere}
.waiting code{color:var(--wait);margin-left:.3rem}.waiting span{display:block;color:var(--soft)}
h2{font-size:1.15rem;margin:2rem 0 .5rem;border-bottom:1px solid var(--rail)}h3{font-size:1rem;margin:1rem 0 .3rem}
svg{width:100%;height:auto;display:block;margin:.4rem 0}svg text{font-size:12px;fill:var(--ink)}svg .value{fill:var(--soft)}
svg .taken{fill:var(--taken)}
.bars{display:grid;grid-template-columns:minmax(5rem,12rem) 1fr minmax(5rem,max-content);gap:.3rem .6rem;align-items:center;font-size:13px}
.bars .label{text-align:right;overflow:hidden;text-overflow:ellipsis;white-space:nowrap}.bars .value{color:var(--soft)}
@media(max-width:600px){.bars{grid-template-columns:1fr max-content;grid-auto-flow:dense;gap:.1rem .6rem}.bars .label{text-align:left}
.bars .rail{grid-column:1/-1;margin-bottom:.4rem}.bars .value{grid-column:2}}
.bars .rail{display:flex;height:14px;background:var(--rail);border-radius:2px;overflow:hidden}
i.taken,i.spec{background:var(--taken)}i.free{background:var(--free)}i.claims{background:var(--claims)}i.waiting{background:var(--wait)}
i.blocked{background:var(--blocked)}i.partly{background:var(--level2)}i.tainted{background:var(--claims)}
.level0{fill:var(--rail);background:var(--rail)}.level1{fill:var(--level1);background:var(--level1)}
.level2{fill:var(--level2);background:var(--level2)}.level3{fill:var(--level3);background:var(--level3)}
.level4{fill:var(--level4);background:var(--level4)}.absent{fill:none}
.facts{display:flex;flex-wrap:wrap;gap:1.5rem}.facts b{display:block;font-size:1.5rem}.facts span{color:var(--soft)}
.legend span{margin-right:1rem;color:var(--soft)}.legend i{display:inline-block;width:.8em;height:.8em;border-radius:2px;margin-right:.35em}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:13px}td,th{text-align:left;padding:.2rem .5rem;border-bottom:1px solid var(--rail);vertical-align:top}
.number{text-align:right}tr[class] td:nth-child(-n+3){white-space:nowrap}@media(max-width:600px){table{overflow-wrap:anywhere}tr[class] td:nth-child(-n+3){white-space:normal}td,th{padding:.2rem .3rem}}
.none{color:var(--soft)}tr.unschedulable td:nth-child(2),tr.error td:nth-child(2){color:var(--wait)}
"""
