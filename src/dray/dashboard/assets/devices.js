// The map: devices as tiles, coloured, patterned and named by their use.

import { h, link, naturally, plural } from "./dom.js";
import { LETTERS, UNHEALTHY, USES, holders, isUnhealthy, sumUnits, tables, useWords } from "./store.js";

export function tileLabel(pool, name, at) {
  const use = USES[pool.use[at]];
  const held = (holders().get(`${pool.driver}/${pool.pool}/${name}`) || []).map((row) => `${row.claim.namespace}/${row.claim.name}`);
  const shares = ((pool.shares || {})[at] || []).map((bar) => `${bar[1]} of ${bar[2]} ${bar[0]}`).join(", ");
  const taint = (pool.tainted || []).includes(at) ? ", tainted" : "";
  const who = held.length ? ` by ${held.slice(0, 3).join(", ")}${held.length > 3 ? ` and ${held.length - 3} more` : ""}` : "";
  const sick = isUnhealthy(pool, at) ? `, ${UNHEALTHY.name}` : "";
  return `${name}: ${use.name}${sick}${taint}${who}${shares ? ` (${shares})` : ""}`;
}

// The device a drawer is about, as part of the address.
export const deviceLink = (pool, name) => link("nodes", "device", pool.driver, pool.pool, name);

function tile(pool, name, at, size, text) {
  const letter = pool.use[at];
  const bars = (pool.shares || {})[at] || [];
  const fill = bars.length ? Math.max(...bars.map((bar) => bar[3])) : 0;
  const label = tileLabel(pool, name, at);
  const marked = (pool.tainted || []).includes(at) ? " marked" : "";
  const look = isUnhealthy(pool, at) ? UNHEALTHY : USES[letter];
  return h("a", {
    class: `tile ${size} ${look.word}${marked}`, href: deviceLink(pool, name), "aria-label": label, title: label,
    "data-key": name, "data-device": name, tabindex: "-1", vars: letter === "p" ? { "--fill": `${Math.min(100, fill)}%` } : {},
  }, text ? h("span", { class: "tile-name" }, text) : null);
}

// One pool. Devices that draw from one counter set are one group: the whole card, then what it can be cut into.
export function poolMap(pool) {
  const shape = tables.shapes[pool.shape] || { names: [] };
  return h("div", { class: "pool", "data-key": `${pool.driver}/${pool.pool}` },
    h("div", { class: "pool-head" },
      h("span", { class: "pool-name" }, pool.node === pool.pool ? pool.driver : `${pool.driver} / ${pool.pool}`),
      pool.problem ? h("span", { class: "badge bad" }, `${pool.state}: ${pool.problem}`) : null,
      h("span", { class: "quiet" }, poolWords(pool))),
    shape.groups ? groups(pool, shape) : flat(pool, shape));
}

function poolWords(pool) {
  const counts = sumUnits([pool]);
  return [useWords(counts) || plural(0, "device"), counts.x ? `${counts.x} ${UNHEALTHY.name}` : ""].filter(Boolean).join(", ");
}

function flat(pool, shape) {
  const big = shape.names.length <= 32;
  const shared = new Set(shape.shared || []);
  const order = shape.names.map((name, at) => [name, at]).sort((a, b) => naturally(a[0], b[0]));
  return h("div", { class: `tiles ${big ? "" : "small"}`, role: "group", "aria-label": `devices of ${pool.driver}`, "data-grid": `${pool.driver}/${pool.pool}` },
    order.map(([name, at]) => big && shared.has(at) ? sharedTile(pool, name, at) : tile(pool, name, at, big ? "wide" : "dot", big ? name : "")));
}

// A device for many claims shows how much of it they take.
function sharedTile(pool, name, at) {
  const bars = (pool.shares || {})[at] || [];
  const el = tile(pool, name, at, "wide shareable", name);
  el.append(bars.length
    ? h("span", { class: "tile-bars" }, bars.slice(0, 2).map((bar) => h("span", { class: "tile-bar" },
        h("span", { class: "meter", vars: { "--part": `${Math.min(100, bar[3])}%` } }), h("span", { class: "tile-amount" }, bars.length > 1 ? `${bar[0]} ${bar[1]} / ${bar[2]}` : `${bar[1]} of ${bar[2]}`))))
    : h("span", { class: "tile-amount" }, "no shares yet"));
  return el;
}

function groups(pool, shape) {
  const members = shape.groups.map(() => []);
  shape.group.forEach((group, at) => members[group].push(at));
  return h("div", { class: "groups", role: "group", "aria-label": `devices of ${pool.driver}`, "data-grid": `${pool.driver}/${pool.pool}` },
    members.map((places) => {
      const [whole, ...parts] = places;
      return h("div", { class: "group", "data-key": shape.names[whole] },
        tile(pool, shape.names[whole], whole, "wide", shape.names[whole]),
        h("div", { class: "parts" }, parts.map((at) => tile(pool, shape.names[at], at, "dot", ""))));
    }));
}

// Devices of many pools as one bar, for where tiles would be too many.
export function useBar(pools, label) {
  const counts = sumUnits(pools);
  const words = useWords(counts);
  return h("span", { class: "usebar", role: "img", "aria-label": `${label}: ${words || "no devices"}`, title: words },
    LETTERS.filter((letter) => counts[letter]).map((letter) =>
      h("span", { class: `seg ${USES[letter].word}`, "data-key": letter, vars: { "--part": counts[letter] } })));
}

// Spec and claims of one ledger line as one bar.
export function ledgerBar(line) {
  const [resource, allocatable, spec, claims, requested, free, specPart, claimsPart] = line;
  const over = specPart + claimsPart > 100.001;
  const text = `${resource}: ${requested} of ${allocatable} requested, ${spec} by spec, ${claims} by claims, ${free} free`;
  return h("span", {
    class: `ledgerbar${over ? " over" : ""}`, role: "img", "aria-label": text, title: text,
  }, h("span", { class: "by-spec", vars: { "--part": `${Math.min(100, specPart)}%` } }),
  h("span", { class: "by-claims", vars: { "--part": `${Math.min(100 - Math.min(100, specPart), claimsPart)}%` } }));
}
