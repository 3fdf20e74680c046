// The page: which view is open, the summary above it, keys, and the pace of drawing.

import { h, link, morphChildren, number } from "./dom.js";
import { follow, link as connection, onChange, sumUnits, tables, useWords } from "./store.js";
import { choices, clearFilter, isFiltered } from "./controls.js";
import { claimsView } from "./claims.js";
import { isOpen, renderDrawer } from "./drawer.js";
import { useBar } from "./devices.js";
import { eventsView } from "./events.js";
import { historyView } from "./history.js";
import { ledgerView } from "./ledger.js";
import { nodesView } from "./nodes.js";
import { pendingView } from "./pending.js";
import { podsView } from "./pods.js";
import { installKeys } from "./keys.js";

const VIEWS = {
  nodes: { title: "Nodes", draw: nodesView, count: () => Object.keys(tables.nodes).length },
  pods: { title: "Pods", draw: podsView, count: () => Object.keys(tables.pods).length },
  claims: { title: "Claims", draw: claimsView, count: () => Object.keys(tables.claims).length },
  ledger: { title: "Ledger", draw: ledgerView, count: () => null },
  pending: { title: "Pending", draw: pendingView, count: () => Object.keys(tables.pending).length },
  events: { title: "Events", draw: eventsView, count: () => null },
  history: { title: "History", draw: historyView, count: () => null },
};
const main = document.getElementById("main");
const byId = (id) => document.getElementById(id);
const about = JSON.parse(byId("about").textContent);
let shown = "";
let scrolledTo = "";
let waiting = null;

export function route() {
  const [view, kind, ...args] = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  return { view: view in VIEWS ? view : "nodes", kind: kind || "", args };
}

function draw() {
  const delta = waiting.delta;
  waiting = null;
  const { view } = route();
  drawTop(view);
  if (view !== shown) {
    clearFilter();
  }
  const wanted = connection.loaded ? VIEWS[view].draw(main) : [h("p", { class: "empty", "aria-busy": "true" }, "Waiting for the cluster…")];
  morphChildren(main, wanted.flat(3).filter(Boolean));
  if (view !== shown) {
    shown = view;
    scrollTo(0, 0);
    // Rows are placed by where the list is, which is known only now.
    morphChildren(main, VIEWS[view].draw(main).flat(3).filter(Boolean));
  }
  renderDrawer(route(), delta);
  keepTabStops();
}

export function redraw(delta = null) {
  if (waiting) {
    if (delta) waiting.delta = merge(waiting.delta, delta);
    return;
  }
  waiting = { delta };
  requestAnimationFrame(draw);
}

function merge(into, delta) {
  const merged = { ...into };
  for (const [name, rows] of Object.entries(delta)) merged[name] = { ...merged[name], ...rows };
  return merged;
}

function drawTop(view) {
  document.title = `${VIEWS[view].title} · Dray`;
  byId("cluster").textContent = about.title;
  morphChildren(byId("views"), Object.entries(VIEWS).map(([name, each], at) => h("a", {
    href: link(name), "data-key": name, "aria-current": name === view ? "page" : null, "aria-keyshortcuts": String(at + 1),
  }, each.title, each.count() ? h("span", { class: `count${name === "pending" ? " warn" : ""}` }, String(each.count())) : null)));
  // On a narrow screen the list of views is longer than the screen; it grows when the counts come.
  if (scrolledTo !== `${view} ${connection.loaded}`) {
    scrolledTo = `${view} ${connection.loaded}`;
    byId("views").querySelector("[aria-current]").scrollIntoView({ block: "nearest", inline: "center" });
  }
  const state = byId("connection");
  state.textContent = { live: about.isDump ? "a dump" : "live", connecting: "connecting", lost: "reconnecting", stale: "not current" }[connection.state];
  state.dataset.state = connection.state;
  const trouble = byId("trouble");
  trouble.hidden = !connection.problem;
  trouble.textContent = connection.problem && `What you see may be out of date: ${connection.problem}`;
  if (connection.loaded) drawSummary();
}

function drawSummary() {
  const nodes = Object.values(tables.nodes);
  const ready = nodes.filter((node) => !node.problems).length;
  const claims = Object.values(tables.claims);
  const inUse = claims.filter((claim) => claim.state === "in use").length;
  const pools = Object.values(tables.pools);
  const counts = sumUnits(pools);
  const pending = Object.keys(tables.pending).length;
  const figure = (key, href, number, words, extra) => h("a", { class: `figure ${key}`, "data-key": key, href }, h("b", {}, number), h("span", {}, words), extra);
  morphChildren(byId("summary"), [
    figure("f-nodes", link("nodes"), `${ready} of ${nodes.length}`, nodes.length === 1 ? "node ready" : "nodes ready"),
    figure("f-devices", link("nodes"), `${number(counts.u)} of ${number(counts.all)}`, ["devices used", hasPartitions() ? h("i", {}, ", a cut card counts once") : null],
      [useBar(pools, "devices"), h("span", { class: "uses" }, useWords({ ...counts, u: 0 }), counts.x ? `; ${counts.x} unhealthy` : "")]),
    figure("f-claims", link("claims"), `${inUse} of ${claims.length}`, claims.length === 1 ? "claim in use" : "claims in use"),
    figure(`f-pending${pending ? " some" : ""}`, link("pending"), String(pending), pending === 1 ? "pod waits" : "pods wait"),
  ]);
}

const hasPartitions = () => Object.values(tables.shapes).some((shape) => shape.groups);

// One tab stop per map; arrow keys move inside.
function keepTabStops() {
  for (const grid of document.querySelectorAll("[data-grid]")) {
    const tiles = grid.querySelectorAll(".tile");
    const current = grid.contains(document.activeElement) ? document.activeElement : tiles[0];
    for (const tile of tiles) tile.tabIndex = tile === current ? 0 : -1;
  }
}

document.addEventListener("input", (event) => {
  if (event.target.dataset.filter === undefined) return;
  choices.filter = event.target.value;
  scrollTo(0, 0);
  redraw();
});
document.addEventListener("change", (event) => {
  if (!event.target.dataset.choose) return;
  choices[event.target.dataset.choose] = event.target.value;
  redraw();
});
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-set]");
  if (!button) return;
  const { set, value } = button.dataset;
  choices[set] = button.dataset.toggle !== undefined && choices[set] === value ? undefined : value;
  redraw();
});
addEventListener("hashchange", () => redraw());
addEventListener("scroll", () => redraw(), { passive: true });
addEventListener("resize", () => redraw());
setInterval(() => redraw(), 30000);

// Esc: first the side panel, then the filter.
function leave() {
  if (isOpen()) location.hash = link(route().view);
  else if (isFiltered()) {
    clearFilter();
    redraw();
  }
}

installKeys({ views: Object.keys(VIEWS), go: (view) => (location.hash = link(view)), close: leave });
onChange(redraw);
redraw();
follow();
