// Claims, what they hold and who uses them.

import { age, h, isPhone, link, naturally, plural, virtualRows } from "./dom.js";
import { tables, once as derive } from "./store.js";
import { choices, empty, filterBox, matches } from "./controls.js";
import { deviceLink } from "./devices.js";

const STATES = { waiting: "warn", "in use": "good", allocated: "calm", deleting: "bad" };
const ORDER = Object.keys(STATES);

export function claimsView(main) {
  const all = sorted();
  const shown = all.filter((claim) => (!choices.state || claim.state === choices.state) && matches(
    claim.namespace, claim.name, claim.nodes || "", ...claim.users, ...(claim.waiting || []), ...claim.requests,
    ...(claim.devices || []).map((device) => `${device.driver}/${device.pool}/${device.device}`)));
  const height = isPhone() ? 96 : 52;
  return [
    h("div", { class: "bar" }, h("h1", {}, "Claims"), filterBox("Filter claims by name, device, pod or node"),
      h("div", { class: "legend", role: "group", "aria-label": "Show claims that are" }, ORDER.map((state) =>
        h("button", { type: "button", class: "key", "data-set": "state", "data-value": state, "data-toggle": true, "aria-pressed": String(choices.state === state) },
          h("span", { class: `badge ${STATES[state]}` }, state), h("b", {}, String(all.filter((claim) => claim.state === state).length)))))),
    shown.length ? h("div", { class: "table claims", role: "table", "aria-label": "Claims", "aria-rowcount": shown.length + 1 },
      h("div", { class: "head", role: "row", "aria-rowindex": "1" }, ["Claim", "State", "Devices", "Used by", "Nodes", "Age"].map((text) => h("span", { role: "columnheader" }, text))),
      virtualRows(main.querySelector('[data-virtual="claims"]'), shown, height, row, "claims"))
      : empty(all.length ? "No claim matches." : "No claims yet. A pod with resourceClaims makes the first one."),
  ];
}

const sorted = () => derive("claims", () => Object.values(tables.claims).sort((a, b) =>
  ORDER.indexOf(a.state) - ORDER.indexOf(b.state) || naturally(a.namespace + a.name, b.namespace + b.name)));

function deviceWords(claim) {
  const devices = claim.devices || [];
  if (!devices.length) return claim.requests.join("; ");
  const first = devices.slice(0, 2).map((device) => device.device).join(", ");
  return devices.length > 2 ? `${first} and ${devices.length - 2} more` : first;
}

function row(claim) {
  return h("div", { class: "row", role: "row", "data-key": `${claim.namespace}/${claim.name}` },
    h("span", { class: "cell name", role: "cell" }, h("a", { class: "open", href: link("claims", "claim", claim.namespace, claim.name) }, claim.name), h("span", { class: "quiet" }, claim.namespace)),
    h("span", { class: "cell", role: "cell" }, h("span", { class: `badge ${STATES[claim.state]}` }, claim.state)),
    h("span", { class: "cell mono", role: "cell", title: deviceWords(claim) }, deviceWords(claim)),
    h("span", { class: "cell", role: "cell" }, usersOf(claim)),
    h("span", { class: "cell", role: "cell" }, claim.nodes || ""),
    h("span", { class: "cell number", role: "cell" }, age(claim.created)));
}

function usersOf(claim) {
  if (claim.users.length) return claim.users.slice(0, 2).join(", ") + (claim.users.length > 2 ? ` and ${claim.users.length - 2} more` : "");
  return claim.waiting ? h("span", { class: "quiet" }, `${claim.waiting[0]} waits`) : h("span", { class: "quiet" }, "nobody");
}

export function claimDrawer(namespace, name) {
  const claim = tables.claims[`${namespace}/${name}`];
  if (!claim) return { title: name, body: [empty("This claim is gone.")] };
  return {
    title: claim.name,
    body: [
      h("p", { class: "badges" }, h("span", { class: `badge ${STATES[claim.state]}` }, claim.state), h("span", { class: "quiet" }, `namespace ${claim.namespace}, ${age(claim.created)} old`)),
      h("h3", {}, "Requests"),
      h("ul", { class: "plain mono" }, claim.requests.map((text) => h("li", {}, text))),
      h("h3", {}, claim.devices ? plural(claim.devices.length, "device") : "Devices"),
      claim.devices ? h("ul", { class: "plain" }, claim.devices.map(deviceLine)) : h("p", { class: "quiet" }, "None yet."),
      claim.nodes ? h("p", {}, "Usable on ", claim.nodes in tables.nodes ? h("a", { href: link("nodes", "node", claim.nodes) }, claim.nodes) : claim.nodes, ".") : null,
      h("h3", {}, "Used by"),
      claim.users.length ? h("ul", { class: "plain mono" }, claim.users.map((pod) => h("li", {}, `${namespace}/${pod}` in tables.pods ? h("a", { href: link("claims", "pod", namespace, pod) }, pod) : pod))) : h("p", { class: "quiet" }, "No pod."),
      claim.waiting ? [h("h3", {}, "Wanted by"), h("ul", { class: "plain mono" }, claim.waiting.map((pod) => h("li", {},
        `${namespace}/${pod}` in tables.pending ? h("a", { href: link("pending", "pod", namespace, pod) }, pod) : pod)))] : null,
      claim.notes ? [h("h3", {}, "Drivers say"), h("ul", {}, claim.notes.map((text) => h("li", {}, text)))] : null,
    ],
  };
}

function deviceLine(device) {
  const amounts = Object.entries(device.consumed || {}).map(([name, amount]) => `${amount} ${name}`).join(", ");
  const words = [device.share ? "share" : "", device.admin ? "admin access" : "", amounts].filter(Boolean).join(": ");
  return h("li", {}, h("a", { class: "mono", href: deviceLink(device, device.device) }, `${device.driver}/${device.pool}/${device.device}`),
    h("span", { class: "quiet" }, ` for ${device.request}${words ? `, ${words}` : ""}`));
}
