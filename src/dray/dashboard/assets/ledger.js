// The ledger by node: what specs and what claims take, and every row behind it.

import { ledgerBar } from "./devices.js";
import { h, isPhone, link, naturally, virtualRows } from "./dom.js";
import { once, tables } from "./store.js";
import { choices, empty, filterBox, matches } from "./controls.js";

const ORDERS = {
  full: ["fullest first", (a, b) => part(b) - part(a)],
  node: ["node", () => 0],
  resource: ["resource", (a, b) => naturally(a.line[0], b.line[0])],
};
const part = ({ line }) => line[6] + line[7];

export function ledgerView(main) {
  const resources = known();
  const picked = choices.resource;
  const order = choices.ledgerOrder || "full";
  const lines = Object.values(tables.nodes).flatMap((node) => (node.ledger || [])
    .filter((line) => (picked ? line[0] === picked : resources.asked.has(line[0])) && matches(node.name, line[0]))
    .map((line) => ({ node, line })))
    .sort((a, b) => ORDERS[order][1](a, b) || naturally(a.node.name, b.node.name));
  const height = isPhone() ? 92 : 44;
  return [
    h("div", { class: "bar" }, h("h1", {}, "Ledger"), filterBox("Filter by node"),
      h("label", { class: "pick" }, h("span", {}, "Sort"), h("select", { "data-choose": "ledgerOrder", "aria-label": "Sort the ledger by" },
        Object.entries(ORDERS).map(([value, [text]]) => h("option", { value, selected: value === order }, text)))),
      h("div", { class: "legend", role: "group", "aria-label": "Show only" }, [...resources.all].map((name) =>
        h("button", { type: "button", class: "key", "data-set": "resource", "data-value": name, "data-toggle": true, "aria-pressed": String(picked === name) }, name)))),
    h("p", { class: "legend small", "aria-hidden": "true" }, h("span", { class: "key" }, h("span", { class: "swatch by-spec" }), "by spec"),
      h("span", { class: "key" }, h("span", { class: "swatch by-claims" }), "by claims"), h("span", { class: "key" }, h("span", { class: "swatch" }), "free")),
    lines.length ? h("div", { class: "table ledger", role: "table", "aria-label": "Ledger", "aria-rowcount": lines.length + 1 },
      h("div", { class: "head", role: "row", "aria-rowindex": "1" }, ["Node", "Resource", "Use", "By spec", "By claims", "Free", "Allocatable"].map((text) => h("span", { role: "columnheader" }, text))),
      virtualRows(main.querySelector('[data-virtual="ledger"]'), lines, height, row, "ledger")) : empty("No node matches."),
  ];
}

// Resources that are asked of any node; cpu and memory are always of interest.
const known = () => once("resources", () => {
  const all = new Set(["cpu", "memory"]);
  const asked = new Set(all);
  for (const node of Object.values(tables.nodes)) {
    for (const line of node.ledger || []) {
      all.add(line[0]);
      if (line[4] !== "0") asked.add(line[0]);
    }
  }
  return { all, asked };
});

// The sum of both is the bar; no amount stands twice in a row.
const unlessZero = (text) => (text === "0" ? "–" : text);
const percent = (value) => `${value > 0 && value < 1 ? "<1" : Math.round(value)} %`;

function row({ node, line }) {
  const [resource, allocatable, spec, claims, , free] = line;
  const over = node.over && node.over.includes(resource);
  return h("div", { class: "row", role: "row", "data-key": `${node.name}/${resource}` },
    h("span", { class: "cell name", role: "cell" }, h("a", { class: "open", href: link("ledger", "why", node.name, resource) }, node.name)),
    h("span", { class: "cell", role: "cell" }, resource, over ? h("span", { class: "badge bad" }, "over") : null),
    h("span", { class: "cell bar-cell", role: "cell" }, ledgerBar(line), h("span", { class: "amount" }, percent(part({ line })))),
    [["spec", unlessZero(spec)], ["claims", unlessZero(claims)], ["free", free], ["of", allocatable]].map(([word, text]) =>
      h("span", { class: "cell number", role: "cell", "data-word": word }, text)));
}

// --- the rows behind an amount

export function whyDrawer(name, resource, rows) {
  const node = tables.nodes[name];
  const line = node && (node.ledger || []).find((each) => each[0] === resource);
  if (!line) return { title: `${resource} of ${name}`, body: [empty("This node has no such resource any more.")] };
  const [, allocatable, spec, claims, requested, free] = line;
  return {
    title: `${resource} of ${name}`,
    body: [
      h("div", { class: "big-bar" }, ledgerBar(line)),
      h("dl", { class: "figures" }, [["by spec", spec], ["by claims", claims], ...(spec !== "0" && claims !== "0" ? [["requested", requested]] : []), ["free", free], ["allocatable", allocatable]].filter(([, text]) => text !== "0").map(([word, text]) =>
        h("div", {}, h("dt", {}, word), h("dd", {}, text)))),
      h("h3", {}, "Who takes it"),
      !rows ? h("p", { class: "quiet" }, "Loading…") : rows.error ? h("p", { class: "problem" }, rows.error)
        : !rows.length ? h("p", { class: "quiet" }, "Nobody asks for any of it.")
          : h("ul", { class: "why" }, rows.slice(0, 200).map(whyRow), rows.length > 200 ? h("li", { class: "quiet" }, `and ${rows.length - 200} smaller ones`) : null),
    ],
  };
}

function whyRow(row) {
  const ofClaim = row.kind === "claim" || row.kind === "pool";
  const container = row.container && `container ${row.container}`;
  const through = ofClaim ? [`by claim ${row.claim}`, container].filter(Boolean).join(", ") : `by spec: ${container || row.kind}`;
  return h("li", {},
    h("span", { class: `swatch ${ofClaim ? "by-claims" : "by-spec"}`, title: ofClaim ? "by claims" : "by spec" }),
    h("span", { class: "who" }, h("b", {}, row.pods.join(", ")), h("span", { class: "quiet" }, through),
      row.device ? h("span", { class: "quiet mono" }, row.device) : null, row.policy ? h("span", { class: "quiet" }, row.policy) : null),
    h("span", { class: "amount" }, row.quantity));
}
