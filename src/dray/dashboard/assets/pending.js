// Pods that wait for a node, and why.

import { age, h, isPhone, link, plural, prose, virtualRows } from "./dom.js";
import { once, tables } from "./store.js";
import { empty, filterBox, matches } from "./controls.js";
import { eventsOf } from "./pods.js";

// What is counted at each stage, in full and in short.
const STAGES = {
  exist: ["exist", "exist"], matchClass: ["are of the class", "of class"], matchSelectors: ["match the selectors", "match"], free: ["are free", "free"],
  tolerated: ["have no taint in the way", "taints ok"], fit: ["fit capacity and counters", "fit"], satisfy: ["satisfy the constraints", "satisfy"],
};

export function pendingView(main) {
  const all = once("pending", () => Object.values(tables.pending).sort((a, b) => b.priority - a.priority || (a.created < b.created ? -1 : 1)));
  const shown = all.filter((pod) => matches(pod.namespace, pod.name, pod.code, pod.message, pod.said, ...pod.claims));
  const height = isPhone() ? 112 : 68;
  return [
    h("div", { class: "bar" }, h("h1", {}, "Pending pods"), filterBox("Filter pods by name, claim or cause")),
    shown.length ? h("div", { class: "table pending", role: "table", "aria-label": "Pending pods", "aria-rowcount": shown.length + 1 },
      h("div", { class: "head", role: "row", "aria-rowindex": "1" }, ["Pod", "Why it waits", "Claims", "Age"].map((text) => h("span", { role: "columnheader" }, text))),
      virtualRows(main.querySelector('[data-virtual="pending"]'), shown, height, row, "pending"))
      : empty(all.length ? "No pod matches." : "No pod waits. Every pod has a node."),
  ];
}

function row(pod) {
  return h("div", { class: "row", role: "row", "data-key": `${pod.namespace}/${pod.name}` },
    h("span", { class: "cell name", role: "cell" }, h("a", { class: "open", href: link("pending", "pod", pod.namespace, pod.name) }, pod.name), h("span", { class: "quiet" }, pod.namespace)),
    h("span", { class: "cell message", role: "cell", title: pod.message }, pod.code ? h("b", { title: pod.cause }, `${pod.code}: `) : null, prose(pod.message)),
    h("span", { class: "cell mono", role: "cell" }, pod.claims.join(", ")),
    h("span", { class: "cell number", role: "cell" }, age(pod.created)));
}

export function podDrawer(namespace, name, verdict) {
  const pod = tables.pending[`${namespace}/${name}`];
  const title = name;
  if (!pod) return { title, body: [h("p", { class: "empty" }, "This pod does not wait any more.")] };
  const said = [h("h3", {}, "The scheduler says"), h("p", { class: "said" }, pod.said)];
  const head = h("p", { class: "badges" }, h("span", { class: "badge warn" }, pod.reason || "not tried yet"), h("span", { class: "quiet" }, `namespace ${namespace}, waits for ${age(pod.created)}`));
  const claims = pod.claims.length ? h("p", { class: "quiet" }, "claims: ", pod.claims.map((claim, at) => [at ? ", " : "",
    `${namespace}/${claim}` in tables.claims ? h("a", { href: link("claims", "claim", namespace, claim) }, claim) : claim])) : null;
  if (!verdict) return { title, body: [head, claims, h("p", { class: "quiet" }, "Working out why…"), said] };
  if (verdict.error) return { title, body: [head, claims, said, h("p", { class: "problem" }, `No explanation: ${verdict.error}`)] };
  const helps = verdict.helps.length ? verdict.helps : verdict.nodes.length ? verdict.nodes[0].helps : [];
  const texts = [...new Set(helps.map((help) => help.text))];
  return {
    title,
    body: [
      head, claims,
      h("p", { class: "headline" }, prose(verdict.message)),
      verdict.meaning ? h("p", { class: "quiet" }, `${verdict.code}: ${verdict.meaning}`) : null,
      verdict.fix ? [h("h3", {}, "What to do"), h("p", { class: "fix" }, prose(verdict.fix))] : null,
      verdict.details.length ? h("ul", {}, verdict.details.map((text) => h("li", {}, prose(text)))) : null,
      texts.length || (verdict.remedy && !verdict.fix) ? [h("h3", {}, "What would help"), h("ul", { class: "helps" }, (texts.length ? texts : [verdict.remedy]).map((text) => h("li", {}, prose(text))))] : null,
      verdict.nodes.length ? [h("h3", {}, "Node by node"), byCode(verdict), verdict.nodes.slice(0, 12).map(nodeVerdict),
        verdict.nodes.length > 12 ? h("p", { class: "quiet" }, `and ${plural(verdict.nodes.length - 12, "more node")}, farther off`) : null] : null,
      verdict.notes.length ? h("ul", { class: "quiet" }, verdict.notes.map((text) => h("li", {}, text))) : null,
      said,
      eventsOf("Pod", namespace, name),
    ],
  };
}

const byCode = (verdict) => h("p", { class: "badges" }, Object.entries(verdict.nodesByCode).map(([code, count]) =>
  h("span", { class: `badge ${code === "fits" ? "good" : "warn"}` }, `${count} × ${code}`)));

function nodeVerdict(node, at) {
  return h("details", { class: "verdict", open: at === 0, "data-key": node.node },
    h("summary", {}, h("b", {}, node.node), h("span", { class: `badge ${node.fits ? "good" : "warn"}` }, node.code)),
    h("p", {}, prose(node.message || "would take the pod")),
    node.requests.map(funnel),
    node.nearest ? h("div", { class: "nearest" }, h("b", {}, "Nearest miss"), h("p", { class: "mono" }, node.nearest.device),
      node.nearest.expression ? h("pre", {}, node.nearest.expression) : null,
      h("p", {}, prose((node.nearest.because.length ? node.nearest.because : [node.nearest.detail]).join("; "))),
      node.nearest.hints.length ? h("p", { class: "quiet" }, prose(`perhaps ${node.nearest.hints.join(", ")}`)) : null,
      node.nearest.holders.map((holder) => h("p", { class: "quiet" }, `held by claim ${holder.claim}${holder.pods.length ? ` of pod ${holder.pods.join(", ")}` : ""}`))) : null,
    node.refusals.flatMap((refusal) => refusal.rows).map((short) => h("p", { class: "short" },
      h("b", {}, short.resource), `: ${short.asked} asked, ${short.free} of ${short.allocatable} free`,
      short.takers.length ? h("span", { class: "quiet" }, ` most is taken by ${short.takers.join(", ")}`) : null)));
}

// How many devices are left after each test; where they become too few is marked.
function funnel(request) {
  return h("div", { class: "funnel", "data-key": `${request.claim}/${request.request}` },
    h("p", {}, h("b", {}, request.request), h("span", { class: "quiet" }, ` of claim ${request.claim}, class ${request.class}: wants ${request.wanted}`)),
    h("ol", {}, Object.entries(STAGES).map(([stage, [words, word]]) => {
      const short = stage === request.shortAt;
      return h("li", { class: short ? "short-at" : "", title: `${request.counts[stage]} ${words}${short ? ", too few" : ""}` },
        h("b", {}, String(request.counts[stage])), h("span", {}, word), short ? h("span", { class: "unseen" }, ", too few") : null);
    })));
}
