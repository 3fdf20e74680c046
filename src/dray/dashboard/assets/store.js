// What the page knows of the cluster: tables of rows, replaced whole by a snapshot and row by row by deltas.

export const tables = { shapes: {}, nodes: {}, pools: {}, claims: {}, pending: {} };
export const link = { state: "connecting", problem: "", loaded: false };

let version = 0;
let changed = () => {};
let source = null;
const derived = new Map();

export function onChange(callback) {
  changed = callback;
}

// Worked out once per state of the tables.
export function once(name, work) {
  const known = derived.get(name);
  if (known && known.version === version) return known.value;
  const value = work();
  derived.set(name, { version, value });
  return value;
}

export function follow() {
  if (source) return;
  source = new EventSource("api/events");
  source.addEventListener("snapshot", (event) => {
    Object.assign(tables, JSON.parse(event.data));
    link.loaded = true;
    bump({});
  });
  source.addEventListener("delta", (event) => {
    const delta = JSON.parse(event.data);
    for (const [name, rows] of Object.entries(delta)) {
      for (const [key, row] of Object.entries(rows)) {
        if (row === null) delete tables[name][key];
        else tables[name][key] = row;
      }
    }
    bump(delta);
  });
  source.addEventListener("status", (event) => {
    const status = JSON.parse(event.data);
    link.state = status.reachable ? "live" : "stale";
    link.problem = status.problem || "";
    changed({});
  });
  source.onerror = () => {
    link.state = "lost";
    if (source.readyState === EventSource.CLOSED) {
      unfollow();
      link.problem = "the dashboard's server does not answer, or its token has changed";
      setTimeout(follow, 3000);
    }
    changed({});
  };
}

function unfollow() {
  if (source) source.close();
  source = null;
}

// A tab in the background does not keep the cluster busy.
document.addEventListener("visibilitychange", () => (document.hidden ? unfollow() : follow()));

function bump(delta) {
  version += 1;
  changed(delta);
}

export async function ask(what, query) {
  const answer = await fetch(`api/${what}?${new URLSearchParams(query)}`);
  if (!answer.ok) throw new Error((await answer.text()).trim());
  return answer.json();
}

// --- devices

export const USES = {
  u: { name: "in use", word: "in-use" },
  p: { name: "partly used", word: "partly" },
  f: { name: "free", word: "free" },
  b: { name: "blocked by counters", word: "blocked" },
  t: { name: "tainted", word: "tainted" },
  x: { name: "unhealthy", word: "unhealthy" },
};
export const LETTERS = Object.keys(USES);
// Unhealthy and held: shown with the unhealthy ones, counted with those in use.
USES.X = { name: "unhealthy, in use", word: "unhealthy" };

const counted = new WeakMap();

export function countsOf(pool) {
  let counts = counted.get(pool);
  if (!counts) {
    counts = {};
    for (const letter of pool.use) counts[letter] = (counts[letter] || 0) + 1;
    counted.set(pool, counts);
  }
  return counts;
}

export const sum = (pools) => total(pools, countsOf, (_, pool) => pool.use.length);

function total(pools, count, size) {
  const found = { all: 0, X: 0 };
  for (const letter of LETTERS) found[letter] = 0;
  for (const pool of pools) {
    const counts = count(pool);
    found.all += size(counts, pool);
    for (const [letter, number] of Object.entries(counts)) found[letter] += number;
  }
  found.held = found.u + found.p + found.X;
  found.x += found.X;
  return found;
}

// Partitions overlap: of a card that is cut up, dozens of them are blocked. How full a node is shows better when everything
// that draws from one counter set counts once: in use if nothing of it is left, partly if something is.
const united = new WeakMap();

function unitsOf(pool) {
  const known = united.get(pool);
  if (known) return known;
  const shape = tables.shapes[pool.shape];
  const units = {};
  const count = (letter) => { units[letter] = (units[letter] || 0) + 1; };
  if (!shape || !shape.groups) for (const letter of pool.use) count(letter);
  else {
    const groups = shape.groups.map(() => "");
    shape.group.forEach((group, at) => { groups[group] += pool.use[at]; });
    groups.forEach((uses, at) => (shape.groups[at] ? count(unitUse(uses)) : [...uses].forEach(count)));
  }
  united.set(pool, units);
  return units;
}

function unitUse(uses) {
  const held = /[upX]/.test(uses);
  if (/[xX]/.test(uses)) return held ? "X" : "x";
  if (held) return uses.includes("f") ? "p" : "u";
  return uses[0] === "t" || !uses.includes("f") ? uses[0] : "f";
}

export function sumUnits(pools) {
  return total(pools, unitsOf, (counts) => Object.values(counts).reduce((all, count) => all + count, 0));
}

export const poolsByNode = () => once("poolsByNode", () => {
  const found = new Map();
  const pools = Object.values(tables.pools).sort((a, b) => (a.driver + a.pool < b.driver + b.pool ? -1 : 1));
  for (const pool of pools) {
    const where = pool.node in tables.nodes ? pool.node : "";
    if (!found.has(where)) found.set(where, []);
    found.get(where).push(pool);
  }
  return found;
});

// Claims that hold a device, by driver/pool/device.
export const holders = () => once("holders", () => {
  const found = new Map();
  for (const claim of Object.values(tables.claims)) {
    for (const device of claim.devices || []) {
      const id = `${device.driver}/${device.pool}/${device.device}`;
      if (!found.has(id)) found.set(id, []);
      found.get(id).push({ claim, device });
    }
  }
  return found;
});
