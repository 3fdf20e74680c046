// Every pod: where it is, how it is, and which claims it has.

import { age, h, isPhone, link, naturally, virtualRows } from "./dom.js";
import { events, once, tables } from "./store.js";
import { choices, empty, filterBox, matches } from "./controls.js";

const STATES = { waiting: "warn", starting: "calm", running: "good", succeeded: "calm", failed: "bad", leaving: "bad", unknown: "bad" };
const ORDER = Object.keys(STATES);

export function podsView(main) {
  const all = sorted();
  const shown = all.filter((pod) => (!choices.state || pod.state === choices.state) && matches(pod.namespace, pod.name, pod.node, pod.state, ...pod.claims));
  const states = ORDER.filter((state) => all.some((pod) => pod.state === state));
  const height = isPhone() ? 92 : 52;
  return [
    h("div", { class: "bar" }, h("h1", {}, "Pods"), filterBox("Filter pods by name, node or claim"),
      h("div", { class: "legend", role: "group", "aria-label": "Show pods that are" }, states.map((state) =>
        h("button", { type: "button", class: "key", "data-set": "state", "data-value": state, "data-toggle": true, "aria-pressed": String(choices.state === state) },
          h("span", { class: `badge ${STATES[state]}` }, state), h("b", {}, String(all.filter((pod) => pod.state === state).length)))))),
    shown.length ? h("div", { class: "table pods", role: "table", "aria-label": "Pods", "aria-rowcount": shown.length + 1 },
      h("div", { class: "head", role: "row", "aria-rowindex": "1" }, ["Pod", "State", "Node", "Claims", "Ready", "Restarts", "Age"].map((text) => h("span", { role: "columnheader" }, text))),
      virtualRows(main.querySelector('[data-virtual="pods"]'), shown, height, row, "pods"))
      : empty(all.length ? "No pod matches." : "No pods yet."),
  ];
}

const sorted = () => once("pods", () => Object.values(tables.pods).sort((a, b) =>
  ORDER.indexOf(a.state) - ORDER.indexOf(b.state) || naturally(`${a.namespace}/${a.name}`, `${b.namespace}/${b.name}`)));

export const podBadge = (pod) => h("span", { class: `badge ${STATES[pod.state] || "calm"}` }, pod.state);

function row(pod) {
  return h("div", { class: "row", role: "row", "data-key": `${pod.namespace}/${pod.name}` },
    h("span", { class: "cell name", role: "cell" }, h("a", { class: "open", href: link("pods", "pod", pod.namespace, pod.name) }, pod.name), h("span", { class: "quiet" }, pod.namespace)),
    h("span", { class: "cell", role: "cell", title: pod.problem || "" }, podBadge(pod)),
    h("span", { class: "cell", role: "cell" }, pod.node),
    h("span", { class: "cell mono", role: "cell" }, pod.claims.join(", ")),
    h("span", { class: "cell number", role: "cell", "data-word": "ready" }, pod.node ? `${pod.ready[0]} / ${pod.ready[1]}` : ""),
    h("span", { class: "cell number", role: "cell", "data-word": "restarts" }, pod.restarts ? String(pod.restarts) : ""),
    h("span", { class: "cell number", role: "cell" }, age(pod.created)));
}

// --- one pod that has a node, in the drawer

export function placedPodDrawer(namespace, name) {
  const pod = tables.pods[`${namespace}/${name}`];
  if (!pod) return { title: name, body: [h("p", { class: "empty" }, "This pod is gone.")] };
  return {
    title: name,
    body: [
      h("p", { class: "badges" }, podBadge(pod), h("span", { class: "quiet" }, `namespace ${namespace}, ${age(pod.created)} old`)),
      pod.problem ? h("p", { class: "problem" }, pod.problem) : null,
      pod.node in tables.nodes ? h("p", {}, "on ", h("a", { href: link("nodes", "node", pod.node) }, pod.node)) : null,
      h("p", { class: "quiet" }, `${pod.ready[0]} of ${pod.ready[1]} containers ready, ${pod.restarts} restarts`),
      pod.claims.length ? [h("h3", {}, "Claims and devices"), h("ul", { class: "plain" }, pod.claims.map((claim) => claimLine(namespace, claim)))] : null,
      eventsOf("Pod", namespace, name),
    ],
  };
}

function claimLine(namespace, name) {
  const claim = tables.claims[`${namespace}/${name}`];
  if (!claim) return h("li", {}, name);
  return h("li", {}, h("a", { href: link("claims", "claim", namespace, name) }, name), (claim.devices || []).map((device) =>
    h("div", {}, h("a", { class: "mono", href: link("pods", "device", device.driver, device.pool, device.device) }, `${device.driver}/${device.pool}/${device.device}`))));
}

// What has been reported about an object, the newest first.
export function eventsOf(kind, namespace, name) {
  const found = events().filter((event) => event.kind === kind && event.namespace === namespace && event.name === name).slice(0, 12);
  if (!found.length) return null;
  return [h("h3", {}, "Events"), h("ul", { class: "plain" }, found.map((event) => h("li", { "data-key": event.key },
    h("b", { class: event.type === "Warning" ? "problem" : "" }, event.reason), h("span", { class: "quiet" }, ` ${age(event.time)} ago${event.count > 1 ? `, ${event.count} times` : ""}`), h("div", {}, event.message))))];
}
