// Elements, and making the page equal to what a view wants while focus and scroll stay where they are.

// Controls, marks that turn the direction of writing, and characters without width, which could change what the reader believes to see.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

export const visible = (text) => String(text).replace(HIDDEN, (found) => `\\u${found.charCodeAt(0).toString(16).padStart(4, "0")}`);

const READ_BY_PEOPLE = new Set(["title", "aria-label", "placeholder", "alt"]);

export function h(tag, props, ...children) {
  const el = document.createElement(tag);
  for (const [name, value] of Object.entries(props || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "vars") for (const [key, text] of Object.entries(value)) el.style.setProperty(key, text);
    else el.setAttribute(name, value === true ? "" : READ_BY_PEOPLE.has(name) ? visible(value) : value);
  }
  add(el, children);
  return el;
}

function add(el, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false || child === "") continue;
    if (Array.isArray(child)) add(el, child);
    else el.append(child instanceof Node ? child : visible(child));
  }
}

// Sentences mark code with backticks.
export const prose = (text) => String(text).split("`").map((piece, at, all) => (at % 2 && at < all.length - 1 ? h("code", {}, piece) : at % 2 ? `\`${piece}` : piece));

// Makes `old` look like `wanted`. Children with data-key are matched by it, others by position.
export function morph(old, wanted) {
  if (old.nodeType !== wanted.nodeType || old.nodeName !== wanted.nodeName) {
    old.replaceWith(wanted);
    return;
  }
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== wanted.data) old.data = wanted.data;
    return;
  }
  if (old.isEqualNode(wanted)) return;
  syncAttributes(old, wanted);
  if (old.dataset.keep !== undefined) return;
  morphChildren(old, [...wanted.childNodes]);
}

function syncAttributes(old, wanted) {
  for (const { name } of [...old.attributes]) if (!wanted.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of wanted.attributes) {
    if (old.getAttribute(name) === value) continue;
    // The page's policy allows styles to be set by script, not by attribute.
    if (name === "style") old.style.cssText = value;
    else old.setAttribute(name, value);
  }
}

export function morphChildren(parent, wanted) {
  const focused = parent.contains(document.activeElement) ? document.activeElement : null;
  const keys = new Set(wanted.map((node) => node.dataset && node.dataset.key));
  const keyed = new Map();
  for (const child of [...parent.children]) {
    if (!child.dataset.key) continue;
    // What goes, goes first: then what stays need not move.
    if (keys.has(child.dataset.key)) keyed.set(child.dataset.key, child);
    else child.remove();
  }
  let at = parent.firstChild;
  for (const node of wanted) {
    const key = node.dataset && node.dataset.key;
    const same = key ? keyed.get(key) : at && !(at.dataset && at.dataset.key) ? at : null;
    if (same && same.nodeName === node.nodeName) {
      if (same !== at) parent.insertBefore(same, at);
      else at = at.nextSibling;
      morph(same, node);
    } else {
      parent.insertBefore(node, at);
    }
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
  // An element that was moved has lost the focus on the way.
  if (focused && focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
}

// Rows of one height, of which only those near the window exist. `row(item, index)` gives an element.
export function virtualRows(host, items, height, row, label) {
  const top = host ? host.getBoundingClientRect().top : 0;
  const first = Math.max(0, Math.floor(-top / height) - 8);
  const last = Math.min(items.length, Math.ceil((innerHeight - top) / height) + 8);
  const rows = [];
  for (let index = first; index < Math.max(last, first); index++) {
    const el = row(items[index], index);
    el.style.setProperty("--at", `${index * height}px`);
    el.setAttribute("aria-rowindex", index + 2);
    rows.push(el);
  }
  return h("div", {
    class: "rows", role: "rowgroup", "data-virtual": label, vars: { "--rows": `${items.length * height}px`, "--row": `${height}px` },
  }, rows);
}

export const link = (...parts) => "#/" + parts.map(encodeURIComponent).join("/");
export const isPhone = () => matchMedia("(max-width: 720px)").matches;
export const number = (count) => count.toLocaleString("en");
export const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;

export function age(created) {
  const seconds = Math.max(0, (Date.now() - Date.parse(created)) / 1000);
  if (!isFinite(seconds)) return "";
  for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "m"]]) if (seconds >= size) return `${Math.floor(seconds / size)}${unit}`;
  return `${Math.floor(seconds)}s`;
}

// node-2 before node-10.
export const naturally = (left, right) => left.localeCompare(right, "en", { numeric: true });
