// What components have reported, the newest first.

import { age, h, isPhone, link, virtualRows } from "./dom.js";
import { events, tables } from "./store.js";
import { choices, empty, filterBox, matches } from "./controls.js";

const TYPES = { Warning: "warn", Normal: "calm" };

export function eventsView(main) {
  const all = events();
  const shown = all.filter((event) => (!choices.type || event.type === choices.type) && matches(event.namespace, event.name, event.kind, event.reason, event.message, event.from));
  const height = isPhone() ? 112 : 56;
  return [
    h("div", { class: "bar" }, h("h1", {}, "Events"), filterBox("Filter events by object, reason or message"),
      h("div", { class: "legend", role: "group", "aria-label": "Show only" }, Object.entries(TYPES).map(([type, look]) =>
        h("button", { type: "button", class: "key", "data-set": "type", "data-value": type, "data-toggle": true, "aria-pressed": String(choices.type === type) },
          h("span", { class: `badge ${look}` }, type.toLowerCase()), h("b", {}, String(all.filter((event) => event.type === type).length)))))),
    shown.length ? h("div", { class: "table events", role: "table", "aria-label": "Events", "aria-rowcount": shown.length + 1 },
      h("div", { class: "head", role: "row", "aria-rowindex": "1" }, ["Object", "Reason", "Message", "Times", "Last"].map((text) => h("span", { role: "columnheader" }, text))),
      virtualRows(main.querySelector('[data-virtual="events"]'), shown, height, row, "events"))
      : empty(all.length ? "No event matches." : "No events. Kubernetes keeps them for an hour."),
  ];
}

// Objects that the page shows can be opened from here.
function objectLink(event) {
  const text = `${event.kind.toLowerCase()} ${event.name}`;
  if (event.kind === "Pod" && `${event.namespace}/${event.name}` in tables.pods) return h("a", { class: "open", href: link("events", "pod", event.namespace, event.name) }, text);
  if (event.kind === "ResourceClaim" && `${event.namespace}/${event.name}` in tables.claims) return h("a", { class: "open", href: link("events", "claim", event.namespace, event.name) }, text);
  if (event.kind === "Node" && event.name in tables.nodes) return h("a", { class: "open", href: link("events", "node", event.name) }, text);
  return h("b", {}, text);
}

function row(event) {
  return h("div", { class: "row", role: "row", "data-key": event.key },
    h("span", { class: "cell name", role: "cell" }, objectLink(event), h("span", { class: "quiet" }, event.namespace)),
    h("span", { class: "cell", role: "cell" }, h("span", { class: `badge ${TYPES[event.type] || "calm"}`, title: event.from }, event.reason)),
    h("span", { class: "cell message", role: "cell", title: event.message }, event.message),
    h("span", { class: "cell number", role: "cell", "data-word": "times" }, event.count > 1 ? String(event.count) : ""),
    h("span", { class: "cell number", role: "cell" }, age(event.time)));
}
