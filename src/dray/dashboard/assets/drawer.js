// What is open at the side: one device, node, claim, ledger line or pod. Questions to the server are asked when it opens and
// again when something it shows has changed.

import { h, link, morphChildren, naturally } from "./dom.js";
import { UNHEALTHY, USES, ask, holders, isUnhealthy, tables } from "./store.js";
import { claimDrawer } from "./claims.js";
import { nodeDrawer } from "./nodes.js";
import { podDrawer } from "./pending.js";
import { placedPodDrawer } from "./pods.js";
import { whyDrawer } from "./ledger.js";
import { empty } from "./controls.js";

const drawer = document.getElementById("drawer");
const QUIET_MS = 700;
let open = "";
let asked = null;
let isAsked = false;
let opener = null;
let timer = 0;

const waits = (namespace, name) => `${namespace}/${name}` in tables.pending;

const KINDS = {
  node: { show: ([name]) => nodeDrawer(name) },
  shared: { show: () => nodeDrawer("") },
  claim: { show: ([namespace, name]) => claimDrawer(namespace, name) },
  device: {
    show: deviceDrawer,
    question: ([driver, pool]) => ["devices", { pool: `${driver}/${pool}` }],
    concerns: (delta, [driver, pool]) => delta.pools && `${driver}/${pool}` in delta.pools,
  },
  why: {
    show: ([node, resource], answer) => whyDrawer(node, resource, answer),
    question: ([node, resource]) => ["why", { node, resource }],
    concerns: (delta, [node]) => delta.nodes && node in delta.nodes,
  },
  pod: {
    show: ([namespace, name], answer) => (waits(namespace, name) ? podDrawer(namespace, name, answer) : placedPodDrawer(namespace, name)),
    question: ([namespace, name]) => (waits(namespace, name) ? ["explain", { pod: `${namespace}/${name}` }] : null),
    concerns: (delta) => ["nodes", "pools", "claims", "pending"].some((table) => delta[table]),
  },
};

export const isOpen = () => !drawer.hidden;

export function renderDrawer(route, delta) {
  const kind = KINDS[route.kind];
  if (!kind) return shut();
  const identity = [route.kind, ...route.args].join("/");
  if (identity !== open) {
    if (!open) opener = document.activeElement;
    open = identity;
    asked = null;
    isAsked = false;
    clearTimeout(timer);
    if (kind.question) inquire(kind, route, identity);
    drawer.hidden = false;
    drawer.scrollTop = 0;
    fill(kind, route);
    drawer.querySelector("h2").focus({ preventScroll: true });
    return;
  }
  // Whether there is a question may be known only when the tables have come.
  if (kind.question && !isAsked) inquire(kind, route, identity);
  else if (kind.question && delta && kind.concerns(delta, route.args)) {
    clearTimeout(timer);
    timer = setTimeout(() => inquire(kind, route, identity), QUIET_MS);
  }
  fill(kind, route);
}

async function inquire(kind, route, identity) {
  const question = kind.question(route.args);
  if (!question) return;
  isAsked = true;
  let answer;
  try {
    answer = await ask(...question);
  } catch (error) {
    answer = { error: error.message };
  }
  if (open !== identity) return;
  asked = answer;
  fill(kind, route);
}

function fill(kind, route) {
  const { title, body } = kind.show(route.args, asked);
  const wanted = h("div", {},
    h("header", {}, h("h2", { id: "drawer-title", tabindex: "-1" }, title), h("a", { class: "tool", href: link(route.view), "data-close": true, "aria-label": "Close", title: "Close (Esc)" }, "×")),
    h("div", { class: "drawer-body" }, body));
  const details = new Map([...drawer.querySelectorAll("details")].map((each) => [each.dataset.key, each.open]));
  for (const each of wanted.querySelectorAll("details")) if (details.has(each.dataset.key)) each.open = details.get(each.dataset.key);
  morphChildren(drawer, [...wanted.childNodes]);
}

function shut() {
  if (!open) return;
  open = "";
  asked = null;
  clearTimeout(timer);
  drawer.hidden = true;
  if (opener && opener.isConnected && opener !== document.body) opener.focus({ preventScroll: true });
  opener = null;
}

// --- one device

function deviceDrawer([driver, poolName, name], answer) {
  const pool = tables.pools[`${driver}/${poolName}`];
  const at = pool ? (tables.shapes[pool.shape] || { names: [] }).names.indexOf(name) : -1;
  if (at < 0) return { title: name, body: [empty("This device is not published any more.")] };
  const known = Array.isArray(answer) ? answer.find((device) => device.name === name) : null;
  const use = USES[pool.use[at]];
  const bars = (pool.shares || {})[at] || [];
  const held = holders().get(`${driver}/${poolName}/${name}`) || [];
  return {
    title: name,
    body: [
      h("p", { class: "badges" }, h("span", { class: "key" }, h("span", { class: `tile dot ${use.word}`, "aria-hidden": "true", vars: { "--fill": "50%" } }), h("b", {}, use.name)),
        isUnhealthy(pool, at) ? h("span", { class: "badge bad" }, UNHEALTHY.name) : null,
        (pool.tainted || []).includes(at) ? h("span", { class: "badge warn" }, "tainted") : null),
      h("p", { class: "quiet mono" }, `${driver}/${poolName}`),
      pool.node in tables.nodes ? h("p", {}, "on ", h("a", { href: link("nodes", "node", pool.node) }, pool.node)) : null,
      known && known.health ? h("p", { class: "problem" }, known.health) : null,
      known && known.taints.length ? h("p", { class: "quiet" }, `taints: ${known.taints.join(", ")}`) : null,
      bars.length ? [h("h3", {}, "Shares"), bars.map((bar) => h("div", { class: "share", "data-key": bar[0] }, h("span", { class: "resource" }, bar[0]),
        h("span", { class: "meter", role: "img", "aria-label": `${bar[1]} of ${bar[2]} taken`, vars: { "--part": `${Math.min(100, bar[3])}%` } }), h("span", { class: "amount" }, `${bar[1]} of ${bar[2]}`)))] : null,
      h("h3", {}, "Held by"),
      held.length ? h("ul", { class: "plain" }, held.map(holder)) : h("p", { class: "quiet" }, known && known.shared ? "No claim has a share." : "No claim."),
      known && known.counters ? [h("h3", {}, "Counters it draws"), counters(known.counters)] : null,
      known ? table("Capacity", known.capacity) : h("p", { class: "quiet" }, answer && answer.error ? answer.error : "Loading…"),
      known ? table("Attributes", known.attributes) : null,
    ],
  };
}

function holder({ claim, device }) {
  const amounts = Object.entries(device.consumed || {}).map(([name, amount]) => `${amount} ${name}`).join(", ");
  return h("li", {}, h("a", { href: link("claims", "claim", claim.namespace, claim.name) }, `${claim.namespace}/${claim.name}`),
    h("span", { class: "quiet" }, `${claim.users.length ? ` for ${claim.users.join(", ")}` : ", used by nobody"}${amounts ? `: ${amounts}` : ""}${device.admin ? ", admin access" : ""}`));
}

function counters(rows) {
  return h("table", { class: "facts" }, h("thead", {}, h("tr", {}, ["counter", "draws", "left", "of"].map((text) => h("th", { scope: "col" }, text)))),
    h("tbody", {}, rows.map(([set, name, draws, left, total]) => h("tr", { title: set }, h("th", { scope: "row" }, name), [draws, left, total].map((text) => h("td", {}, text))))));
}

function table(title, facts) {
  const rows = Object.entries(facts).sort((a, b) => naturally(a[0], b[0]));
  if (!rows.length) return null;
  return [h("h3", {}, title), h("table", { class: "facts" }, h("tbody", {}, rows.map(([name, value]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, value)))))];
}
