// What a person has chosen: filter, order, layout. Kept per view for as long as the page is open.

import { h } from "./dom.js";

export const choices = { filter: "" };

// What narrows a view down, beside the text.
const NARROWING = ["use", "state", "resource", "type"];

export const isFiltered = () => Boolean(choices.filter) || NARROWING.some((name) => choices[name]);

export function clearFilter() {
  choices.filter = "";
  for (const name of NARROWING) delete choices[name];
  for (const box of document.querySelectorAll("[data-filter]")) box.value = "";
}

export function filterBox(label) {
  return h("input", {
    type: "search", class: "filter", placeholder: "Filter  ( / )", "aria-label": label, "data-filter": true, "data-keep": true,
    autocomplete: "off", spellcheck: "false",
  });
}

export function matches(...texts) {
  const words = choices.filter.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return true;
  const whole = texts.join(" ").toLowerCase();
  return words.every((word) => whole.includes(word));
}

export const empty = (text) => h("p", { class: "empty" }, text);
