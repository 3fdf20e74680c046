// Devices in use and waiting pods over the last hours, as the dashboard's server has seen them.

import { h, number } from "./dom.js";
import { once, tables } from "./store.js";
import { empty } from "./controls.js";

const HOURS = 6;
const SLOTS = 120;
const SLOT_S = HOURS * 3600 / SLOTS;

export function historyView() {
  const samples = once("history", () => Object.values(tables.history).sort((a, b) => a.at - b.at));
  const head = h("div", { class: "bar" }, h("h1", {}, "History"), h("p", { class: "quiet" }, `The last ${HOURS} hours, one sample a minute. Where nobody looked there is none.`));
  if (!samples.length) return [head, empty("The first sample comes within a minute.")];
  const last = samples.at(-1);
  const most = Math.max(1, ...samples.map((sample) => sample.waiting));
  return [
    head,
    chart("Devices taken", samples, (sample) => (sample.all ? sample.parts / sample.all : 0), `${Math.round(100 * last.parts / (last.all || 1))} % now: ${number(last.used)} used and ${number(last.partlyUsed)} partly used of ${number(last.all)}`, "100 %", "taken"),
    chart("Waiting pods", samples, (sample) => sample.waiting / most, `${last.waiting} now, at most ${most === 1 && !samples.some((sample) => sample.waiting) ? 0 : most}`, String(most), "waits"),
  ];
}

// One column for each few minutes, the latest at the right; the largest sample of a slot counts.
function chart(title, samples, part, words, top, look) {
  const end = Math.floor(Date.now() / 1000 / SLOT_S);
  const slots = new Array(SLOTS).fill(null);
  for (const sample of samples) {
    const at = SLOTS - 1 - (end - Math.floor(sample.at / SLOT_S));
    if (at >= 0 && at < SLOTS && (!slots[at] || part(sample) >= part(slots[at]))) slots[at] = sample;
  }
  return h("section", { class: "chart", "data-key": title },
    h("header", {}, h("h2", {}, title), h("span", { class: "quiet" }, words)),
    h("div", { class: "plot", role: "img", "aria-label": `${title} over the last ${HOURS} hours: ${words}` },
      h("span", { class: "top-mark" }, top),
      slots.map((sample) => h("span", { class: `column ${sample ? look : "no-sample"}`, title: sample ? tip(sample) : "", vars: { "--part": `${sample ? Math.max(part(sample) * 100, part(sample) ? 2 : 0) : 0}%` } }))),
    h("footer", { "aria-hidden": "true" }, Array.from({ length: HOURS + 1 }, (_, hour) => h("span", {}, hour === HOURS ? "now" : `−${HOURS - hour} h`))));
}

const tip = (sample) => `${new Date(sample.at * 1000).toLocaleTimeString("en-GB")}: ${sample.used} used, ${sample.partlyUsed} partly used, ${sample.free} free of ${sample.all}; ${sample.waiting} waiting`;
