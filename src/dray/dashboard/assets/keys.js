// The keyboard: views by number, lists and maps by arrows, everything listed under "?".

import { h } from "./dom.js";

const SHORTCUTS = [
  [["1", "…", "7"], "nodes, pods, claims, ledger, pending, events, history"],
  [["/"], "filter"],
  [["j", "k"], "next and previous row (arrow keys, too)"],
  [["←", "↑", "→", "↓"], "move between devices"],
  [["Enter"], "open what has the focus"],
  [["Esc"], "close the side panel, clear the filter"],
  [["c"], "nodes as cards or rows"],
  [["t"], "light or dark"],
  [["?"], "this list"],
];

export function installKeys({ views, go, close }) {
  const dialog = document.getElementById("shortcuts");
  dialog.append(
    h("header", {}, h("h2", { id: "shortcuts-title" }, "Keyboard"), h("form", { method: "dialog" }, h("button", { class: "tool", "aria-label": "Close" }, "×"))),
    h("dl", {}, SHORTCUTS.map(([keys, text]) => h("div", {}, h("dt", {}, keys.map((key) => h("kbd", {}, key))), h("dd", {}, text)))),
    h("p", { class: "quiet" }, "The page only looks: nothing here changes the cluster."));
  // The page's policy forbids forms to send; this one only closes.
  dialog.querySelector("form").addEventListener("submit", (event) => { event.preventDefault(); dialog.close(); });
  document.getElementById("help").addEventListener("click", () => dialog.showModal());
  document.getElementById("theme").addEventListener("click", switchTheme);
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || dialog.open) return;
    const typing = event.target.matches("input, select, textarea");
    if (event.key === "Escape") {
      if (typing) event.target.blur();
      return close();
    }
    if (typing) {
      if (event.key === "ArrowDown" && event.target.type === "search") step(event, 1);
      return;
    }
    const view = views[Number(event.key) - 1];
    if (view) return go(view);
    const action = {
      "/": () => { event.preventDefault(); const box = document.querySelector("[data-filter]"); if (box) box.focus(); },
      "?": () => dialog.showModal(),
      t: switchTheme,
      c: () => { const other = document.querySelector('[data-set="layout"][aria-pressed="false"]'); if (other) other.click(); },
      j: () => step(event, 1),
      k: () => step(event, -1),
      ArrowDown: () => arrow(event, 0, 1),
      ArrowUp: () => arrow(event, 0, -1),
      ArrowRight: () => arrow(event, 1, 0),
      ArrowLeft: () => arrow(event, -1, 0),
      Home: () => edge(event, 0),
      End: () => edge(event, -1),
    }[event.key];
    if (action) action();
  });
}

function switchTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  try { localStorage.setItem("dray-theme", root.dataset.theme); } catch { /* storage may be switched off */ }
}

// Rows of a list, or cards; the list follows with its window.
function step(event, by) {
  const items = [...document.querySelectorAll("main .row .open, main .card h2 a")];
  if (!items.length) return;
  event.preventDefault();
  const at = items.findIndex((item) => item === document.activeElement || item.closest(".card")?.contains(document.activeElement));
  const next = items[at < 0 ? 0 : Math.max(0, Math.min(items.length - 1, at + by))];
  next.focus();
  next.scrollIntoView({ block: "nearest" });
}

function arrow(event, x, y) {
  const grid = document.activeElement.closest("[data-grid]");
  if (!grid) {
    if (y && document.activeElement.matches(".open")) step(event, y);
    return;
  }
  event.preventDefault();
  const tiles = [...grid.querySelectorAll(".tile")];
  const next = x ? tiles[tiles.indexOf(document.activeElement) + x] : nearest(tiles, document.activeElement, y);
  if (next) focusTile(tiles, next);
}

function edge(event, at) {
  const grid = document.activeElement.closest("[data-grid]");
  if (!grid) return;
  event.preventDefault();
  const tiles = [...grid.querySelectorAll(".tile")];
  focusTile(tiles, tiles.at(at));
}

function focusTile(tiles, next) {
  for (const tile of tiles) tile.tabIndex = tile === next ? 0 : -1;
  next.focus();
}

// The tile in the next line that lies closest.
function nearest(tiles, from, y) {
  const here = from.getBoundingClientRect();
  const middle = (box) => box.left + box.width / 2;
  let best = null;
  for (const tile of tiles) {
    const box = tile.getBoundingClientRect();
    const down = y > 0 ? box.top - here.bottom : here.top - box.bottom;
    if (down < -1) continue;
    const distance = down * 4 + Math.abs(middle(box) - middle(here));
    if (!best || distance < best.distance) best = { tile, distance };
  }
  return best && best.tile;
}
