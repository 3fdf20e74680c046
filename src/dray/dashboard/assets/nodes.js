// Nodes with their devices: cards when there are few, rows when there are many.

import { ledgerBar, poolMap, useBar } from "./devices.js";
import { age, h, isPhone, link, naturally, plural, virtualRows } from "./dom.js";
import { UNHEALTHY, USES, drivers, once, poolsByNode, sumUnits, tables, useText } from "./store.js";
import { choices, empty, filterBox, matches } from "./controls.js";

const FEW = 8;
const SHARED = { name: "", shared: true };

export function nodesView(main) {
  const all = Object.values(tables.nodes);
  const layout = choices.layout || (all.length <= FEW ? "cards" : "rows");
  const shown = chosen();
  return [
    h("div", { class: "bar" },
      h("h1", {}, "Nodes"),
      filterBox("Filter nodes by name"),
      order(),
      h("div", { class: "switch", role: "group", "aria-label": "Layout" }, ["cards", "rows"].map((name) =>
        h("button", { type: "button", "data-set": "layout", "data-value": name, "aria-pressed": String(layout === name) }, name)))),
    legend(),
    !shown.length ? empty(all.length ? "No node matches." : "The cluster has no nodes yet.")
      : layout === "cards" ? h("div", { class: "cards" }, shown.slice(0, 60).map(card), more(shown))
        : table(main, shown),
  ];
}

const more = (shown) => shown.length > 60 ? h("p", { class: "quiet" }, `${shown.length - 60} more: filter, or use rows.`) : null;

function order() {
  const current = choices.order || "name";
  return h("label", { class: "pick" }, h("span", {}, "Sort"), h("select", { "data-choose": "order", "aria-label": "Sort nodes by" },
    [["name", "name"], ["use", "most used"], ["free", "most free"], ["trouble", "trouble first"]].map(([value, text]) =>
      h("option", { value, selected: value === current }, text))));
}

function legend() {
  const looks = { ...USES, x: UNHEALTHY };
  return h("div", { class: "legend", role: "group", "aria-label": "Show nodes with devices that are" }, Object.entries(looks).map(([letter, look]) =>
    h("button", { type: "button", class: "key", "data-set": "use", "data-value": letter, "data-toggle": true, "aria-pressed": String(choices.use === letter) },
      h("span", { class: `tile dot ${look.word}`, "aria-hidden": "true", vars: letter === "p" ? { "--fill": "50%" } : {} }),
      h("span", {}, look.name))));
}

function chosen() {
  const byNode = poolsByNode();
  const sorted = once(`nodes by ${choices.order}`, () => {
    const rows = Object.values(tables.nodes).map((node) => ({ node, counts: sumUnits(byNode.get(node.name) || []) }));
    const part = (row, name) => row.counts[name] / (row.counts.all || 1);
    const trouble = (row) => (row.node.problems ? 1000 : 0) + row.counts.x * 10 + row.counts.t + (row.node.over ? 500 : 0);
    const by = {
      use: (a, b) => part(b, "parts") - part(a, "parts"),
      free: (a, b) => part(b, "f") - part(a, "f"),
      trouble: (a, b) => trouble(b) - trouble(a),
    }[choices.order];
    return rows.sort((a, b) => (by ? by(a, b) : 0) || naturally(a.node.name, b.node.name)).map((row) => row.node);
  });
  const wide = byNode.has("") ? [SHARED] : [];
  return [...wide, ...sorted].filter((node) => matches(node.name || "many nodes")
    && (!choices.use || (byNode.get(node.name) || []).some(hasChosenUse)));
}

// Whether a tile of the pool looks like the chosen one.
const hasChosenUse = (pool) => (choices.use === "x" ? pool.unhealthy : pool.use.includes(choices.use));

// In a row there is room for the headline of a problem only.
export function badges(node, brief = false) {
  if (node.shared) return [];
  return [
    node.problems ? h("span", { class: "badge bad", title: node.problems.join("; ") }, brief ? node.problems[0].split(":")[0] : node.problems[0]) : h("span", { class: "badge good" }, "ready"),
    node.cordoned ? h("span", { class: "badge warn" }, "cordoned") : null,
    node.taints && !brief ? h("span", { class: "badge warn", title: node.taints.join(", ") }, plural(node.taints.length, "taint")) : null,
    node.over ? h("span", { class: "badge bad", title: node.over.join(", ") }, brief ? "over" : `overcommitted: ${node.over.join(", ")}`) : null,
  ];
}

function card(node) {
  const pools = poolsByNode().get(node.name) || [];
  const lines = (node.ledger || []).filter((line) => line[0] === "cpu" || line[0] === "memory");
  return h("article", { class: "card", "data-key": node.name || "~", "aria-label": node.name || "devices for many nodes" },
    h("header", {},
      h("h2", {}, node.shared ? "Devices for many nodes" : h("a", { href: link("nodes", "node", node.name) }, node.name)),
      badges(node),
      node.pods ? h("span", { class: "quiet" }, `${node.pods[0]} of ${node.pods[1]} pods`) : null),
    lines.length ? h("div", { class: "card-ledger" }, lines.map((line) => h("a", { class: "ledger-line", href: link("ledger", "why", node.name, line[0]), "data-key": line[0] },
      h("span", { class: "resource" }, line[0]), ledgerBar(line), h("span", { class: "amount" }, `${line[4]} of ${line[1]}`)))) : null,
    pools.length ? pools.map(poolMap) : h("p", { class: "quiet" }, "No devices are published for this node."));
}

// So many drivers have a column of their own; further ones share the last.
const MOST_DRIVERS = 4;

const driverColumns = () => once("driver columns", () => {
  const all = drivers();
  if (all.length <= MOST_DRIVERS) return all.map((name) => ({ name, has: (pool) => pool.driver === name }));
  const own = all.slice(0, MOST_DRIVERS - 1);
  return [...own.map((name) => ({ name, has: (pool) => pool.driver === name })), { name: `${all.length - own.length} more drivers`, has: (pool) => !own.includes(pool.driver) }];
});

function table(main, shown) {
  const columns = driverColumns();
  const height = isPhone() ? 66 + 24 * columns.length : 44;
  const host = main.querySelector('[data-virtual="nodes"]');
  const widths = `minmax(11rem, 1.3fr) repeat(${columns.length || 1}, minmax(7rem, 1.3fr)) minmax(7rem, 1.1fr) minmax(7rem, 1.1fr) 4.5rem`;
  return h("div", { class: "table nodes", role: "table", "aria-label": "Nodes", "aria-rowcount": shown.length + 1, vars: { "--columns": widths } },
    h("div", { class: "head", role: "row", "aria-rowindex": "1" }, ["Node", ...columns.map((each) => each.name), "cpu", "memory", "Pods"].map((text) => h("span", { role: "columnheader", title: text }, text))),
    virtualRows(host, shown, height, row, "nodes"));
}

function row(node) {
  const pools = poolsByNode().get(node.name) || [];
  const line = (name) => (node.ledger || []).find((each) => each[0] === name);
  const bar = (name) => h("span", { class: "cell bar-cell", role: "cell", "data-resource": name }, line(name) ? [ledgerBar(line(name)), h("span", { class: "amount" }, line(name)[4])] : "");
  return h("div", { class: "row", role: "row", "data-key": node.name || "~" },
    h("span", { class: "cell name", role: "cell" }, h("a", { class: "open", href: node.shared ? link("nodes", "shared") : link("nodes", "node", node.name) }, node.name || "for many nodes"), node.problems || node.cordoned || node.over ? badges(node, true) : null),
    driverColumns().map((column) => driverCell(node, column, pools.filter(column.has))),
    bar("cpu"), bar("memory"),
    h("span", { class: "cell number", role: "cell" }, node.pods ? `${node.pods[0]} / ${node.pods[1]}` : ""));
}

function driverCell(node, column, pools) {
  const counts = sumUnits(pools);
  return h("span", { class: "cell driver-cell", role: "cell", "data-driver": column.name },
    counts.all ? [useBar(pools, `${column.name} on ${node.name || "many nodes"}`), h("span", { class: "amount" }, useText(counts))] : h("span", { class: "quiet" }, "–"));
}

// --- one node in the drawer

export function nodeDrawer(name) {
  const node = name === "" ? SHARED : tables.nodes[name];
  if (!node) return { title: name, body: [empty("This node is gone.")] };
  const pools = poolsByNode().get(name) || [];
  return {
    title: node.shared ? "Devices for many nodes" : node.name,
    body: [
      h("p", { class: "badges" }, badges(node), node.created ? h("span", { class: "quiet" }, `${age(node.created)} old`) : null,
        node.pods ? h("span", { class: "quiet" }, `${node.pods[0]} of ${node.pods[1]} pods`) : null),
      (node.problems || []).length > 1 ? h("ul", {}, node.problems.map((text) => h("li", {}, text))) : null,
      node.taints ? h("p", { class: "quiet" }, `taints: ${node.taints.join(", ")}`) : null,
      node.ledger ? h("div", { class: "card-ledger" }, node.ledger.map((line) => h("a", { class: "ledger-line", "data-key": line[0], href: link("ledger", "why", node.name, line[0]) },
        h("span", { class: "resource" }, line[0]), ledgerBar(line), h("span", { class: "amount" }, `${line[4]} of ${line[1]}`)))) : null,
      pools.map(poolMap),
    ],
  };
}
