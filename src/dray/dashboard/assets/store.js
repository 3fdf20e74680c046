// What the page knows of the cluster: tables of rows, replaced whole by a snapshot and row by row by deltas.

export const tables = { shapes: {}, nodes: {}, pools: {}, claims: {}, pods: {}, pending: {}, events: {}, history: {} };
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
  source.addEventListener("delta", takeIn);
  source.addEventListener("sample", takeIn);
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

function takeIn(event) {
  const delta = JSON.parse(event.data);
  for (const [name, rows] of Object.entries(delta)) {
    for (const [key, row] of Object.entries(rows)) {
      if (row === null) delete tables[name][key];
      else tables[name][key] = row;
    }
  }
  bump(delta);
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

// The server says what each device is; the words are those of `dray top` and `dray devices`.
export const USES = {
  u: { name: "used", word: "in-use" },
  p: { name: "partly used", word: "partly" },
  f: { name: "free", word: "free" },
  b: { name: "blocked", word: "blocked" },
  t: { name: "tainted", word: "tainted" },
};
export const LETTERS = Object.keys(USES);
export const UNHEALTHY = { name: "unhealthy", word: "unhealthy" };

export const isUnhealthy = (pool, at) => (pool.unhealthy || []).includes(at);

// Devices of some pools by use, a card that is cut counted once; `x` of them, whatever their use, are unhealthy.
export function sumUnits(pools) {
  const found = { all: 0, x: 0, parts: 0 };
  for (const letter of LETTERS) found[letter] = 0;
  for (const pool of pools) {
    for (const [letter, count] of Object.entries(pool.units)) {
      found[letter] += count;
      found.all += count;
    }
    found.x += (pool.unhealthy || []).length;
    found.parts += pool.parts;
  }
  return found;
}

// "3+2/8": of eight devices three are used and two partly.
export const useText = (counts) => `${counts.u}${counts.p ? `+${counts.p}` : ""}/${counts.all}`;

export const useWords = (counts) => LETTERS.filter((letter) => counts[letter]).map((letter) => `${counts[letter]} ${USES[letter].name}`).join(", ");

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

export const drivers = () => once("drivers", () => [...new Set(Object.values(tables.pools).map((pool) => pool.driver))].sort());

// The newest first.
export const events = () => once("events", () => Object.entries(tables.events).map(([key, event]) => ({ key, ...event })).sort((a, b) => (a.time < b.time ? 1 : -1)));

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
