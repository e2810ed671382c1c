// ── Processes ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

const opened = new Set();  // ids; of one process alone the page shows everything without being asked
let chosen = false;        // somebody opened or closed one, or came with an address that names some
const idsIn = hash => hash.replace(/^#/, "").split(",").filter(id => /^[0-9]+-[0-9a-f]{8}$/.test(id)).slice(0, kMostOpened);
function toggle(id) {
  if (!opened.delete(id)) opened.add(id);
  while (opened.size > kMostOpened) opened.delete([...opened][0]);
  chosen = true;
  history.replaceState(null, "", opened.size ? `#${[...opened].join(",")}` : location.pathname + location.search);
  redraw();
  poll();
}
/// Arrows go from process to process, Escape closes.
function walk(event, id) {
  const rows = [...document.querySelectorAll(".row")].filter(row => row.checkVisibility()), at = rows.indexOf(event.currentTarget);
  const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: rows.length - 1 }[event.key];
  if (event.key === "Escape" && opened.has(id)) toggle(id);
  else if (to !== undefined && rows[to]) { rows[to].focus(); event.preventDefault(); }
}
const lived = p => p.state === "living" ? `living ${duration(p.age_seconds)}`
  : known(p.ended_seconds) ? `${p.state} ${duration(p.ended_seconds)} ago` : p.state;
function processView(first) {
  const program = make("b"), pid = make("span"), name = make("span", { class: "name" }, program, pid);
  const bar = budgetBar(`Budget of ${clean(first.program)}`, true), chip = make("span");
  const state = make("span"), stateAlone = make("span"), used = make("data", { class: "n" }), of = make("data", { class: "n of" }), failures = make("data");
  const row = make("button", { type: "button", class: "row", "aria-expanded": "false" }, name, state, bar.node, used, of, chip, failures);
  const heading = make("h2", { class: "clamp" }), about = make("span", { class: "soft" }), none = make("p", { class: "soft" });
  const snapshot = make("a", { href: `snapshot.json?process=${first.id}` }, "post-mortem of now");
  const managers = make("div", { class: "cards" }), cards = make("div", { class: "cards" }), devices = make("div", { class: "column" });
  const parts = [failuresCard(), hooksCard(), threadsCard(), lossesCard()], nodes = parts.map(part => part.node);
  cards.append(make("div", { class: "column" }, nodes[0]), make("div", { class: "column" }, devices, ...nodes.slice(1)));
  const body = make("div", { class: "body" }, make("div", { class: "title" }, heading, stateAlone, about, snapshot), none, managers, cards);
  const node = make("article", { class: "process", "data-process": first.id }, row, body);
  row.addEventListener("click", () => toggle(first.id));
  row.addEventListener("keydown", event => walk(event, first.id));
  return { node, update({ process, many, now, keepSeconds, age, errors, leftOut }) {
    const has = known(process.budget_bytes), open = !many || opened.has(process.id), lives = process.state === "living";
    node.classList.toggle("many", many);
    show(row, many);
    show(body, open);
    put(row, "aria-expanded", open);
    set(program, clean(process.program));
    put(program, "title", clean(process.command || process.program));
    set(pid, ` · ${process.pid}`);
    for (const one of [state, stateAlone]) {
      put(one, "class", `state ${process.state}`);
      put(one, "title", lives ? "" : `lived ${duration(process.age_seconds)}`);
      set(one, lived(process));
    }
    set(heading, clean(process.program));
    set(about, joined([`pid ${process.pid}`, process.host && `on ${clean(process.host)}`, `run ${process.run}`,
      process.version && `headroom ${clean(process.version)}`, known(process.ended_seconds) && `lived ${duration(process.age_seconds)}`]));
    put(about, "title", clean(process.command || ""));
    show(snapshot, many && lives);
    if (many) {
      bar.update(process);
      figure(used, process.allocated_bytes);
      figure(of, has ? process.budget_bytes : null, has ? bytes(process.budget_bytes) : process.manager_count ? "unlimited" : "–");
      if (!has) put(of, "title", "no budget");
      put(chip, "class", `chip ${level(process.pressure)}`);
      set(chip, process.pressure);
      put(failures, "class", `n failed ${num(process.failures) ? "critical" : "soft"}`);
      put(failures, "value", process.failures);
      set(failures, count(process.failures));
    }
    if (!open) return;
    const detailed = Array.isArray(process.managers);
    const empty = !lives ? "It made no manager."
      : "This program has made no manager yet, so nothing was allocated through headroom. Figures appear here as soon as there are some.";
    const waits = known(process.ended_seconds) ? "Its details are not kept any more: only those of who ended last are."
      : leftOut.details ? "Too many others are looked at now; its details come when one of them is closed." : "Reading …";
    set(none, !detailed ? waits : process.managers.length ? "" : empty);
    show(none, none.textContent !== "");
    show(cards, detailed && process.managers.length > 0);
    if (!detailed) return;
    keep(managers, process.managers.map(m => ({ m, process, now, keepSeconds })), one => one.m.id, one => managerCard(one.m));
    keep(devices, process.devices.map((d, at) => ({ d, place: at, process })), one => one.place, deviceCard);
    // Ages are as of its end.
    for (const part of parts) part.update({ process, age: age + num(process.ended_seconds), errors });
  } };
}
function totalsOf(processes) {
  const living = processes.filter(p => p.state === "living"), killed = processes.filter(p => p.state === "killed").length;
  const sum = key => living.reduce((all, p) => all + num(p[key]), 0), tight = living.filter(p => ["high", "critical"].includes(p.pressure)).length;
  return [["living", count(living.length), living.length === 1 ? "process" : "processes"], ["used", bytes(Math.round(sum("allocated_bytes"))), "in use"],
    ["tight", count(tight), "under high pressure", tight > 0], ["failures", count(sum("failures")), "requests failed"],
    ["killed", count(killed), "killed lately", killed > 0]];
}
/// What the exporter left out, since there are bounds.
function leftOutText(l) {
  const many = (value, one, more) => num(value) > 0 && `${count(value)} ${num(value) === 1 ? one : more}`;
  return [many(l.processes, "more process lives and is not listed.", "more processes live and are not listed."),
    many(l.ended, "more process ended lately and is not listed.", "more processes ended lately and are not listed."),
    many(l.histories, "manager has figures but no past: there is no room for more.", "managers have figures but no past: there is no room for more.")]
    .filter(Boolean).join(" ");
}
const orders = {
  use: p => known(p.budget_bytes) && num(p.budget_bytes) > 0 ? num(p.claimed_bytes) / num(p.budget_bytes) : -1,
  allocated: p => num(p.allocated_bytes), failures: p => num(p.failures), age: p => p.age_seconds,
};
function inOrder(processes) {
  const words = byId("filter").value.toLowerCase().split(/\s+/).filter(Boolean), order = byId("sort").value;
  const text = p => `${p.program} ${p.pid} ${p.host || ""} ${p.state}`.toLowerCase();
  const found = processes.filter(p => words.every(word => text(p).includes(word)));
  const byName = (a, b) => a.program < b.program ? -1 : a.program > b.program ? 1 : num(a.pid) - num(b.pid);
  const by = order === "program" ? byName : (a, b) => orders[order](b) - orders[order](a) || (a.id < b.id ? -1 : 1);
  return found.sort(by);
}

// ── Polling ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

let state = null, received = 0, failure = "", paused = false, timer = 0, asking = null;
function redraw() {
  const silent = received ? Date.now() - received : 0, old = failure !== "" || (!paused && received > 0 && silent > kOldAfterMs);
  document.body.classList.toggle("old", old);
  const fresh = old ? `old: of ${duration(silent / 1000)} ago` : paused ? "paused" : "live";
  set(byId("freshness"), received ? fresh : failure ? "no answer" : "connecting …");
  show(byId("banner"), failure !== "");
  const shows = received ? ` What is shown is old: of ${new Date(received).toLocaleTimeString()}.` : "";
  if (failure) set(byId("banner"), `The exporter does not answer (${failure}).${shows} It is asked again every second.`);
  if (!state) return;
  const processes = state.processes, many = state.serves !== "process" || processes.length > 1, shown = inOrder(processes);
  show(byId("empty"), processes.length === 0);
  show(byId("tools"), many && processes.length > 0);
  show(byId("totals"), many && processes.length > 0);
  show(byId("snapshot"), !many);
  const matching = shown.length === processes.length ? "" : `${shown.length} of ${processes.length} processes`;
  set(byId("shown"), matching || `${processes.length} ${processes.length === 1 ? "process" : "processes"}`);
  const common = { many, now: state.now_second, keepSeconds: state.history_seconds, age: old ? silent / 1000 : 0, errors: state.exporter_errors,
    leftOut: state.left_out };
  const draw = (where, some) => keep(byId(where), some.map(process => ({ process, ...common })), one => one.process.id, one => processView(one.process));
  const living = shown.filter(p => !many || !known(p.ended_seconds)), dead = shown.filter(p => many && known(p.ended_seconds));
  dead.sort((a, b) => a.ended_seconds - b.ended_seconds);
  draw("processes", living);
  draw("dead", dead);
  byId("figures").classList.toggle("many", many);
  show(byId("columns"), many);
  show(byId("living"), living.length > 0);
  show(byId("ended"), dead.length > 0);
  set(byId("left-out"), leftOutText(state.left_out));
  show(byId("left-out"), byId("left-out").textContent !== "");
  if (many) {
    keep(byId("totals"), totalsOf(processes), one => one[0], ([name, , label]) => {
      const value = make("dd"), words = make("dt"), node = make("div", { "data-name": name }, words, value);
      return { node, update([, text, label, bad]) { set(value, text); set(words, label); node.classList.toggle("bad", !!bad); } };
    });
  }
  const title = processes.length === 1 && !many ? `${clean(processes[0].program)} – headroom` : "headroom";
  if (document.title !== title) document.title = title;
}
/// Only the seconds that are new, once the past of all that is shown is here; the last two are still growing.
function since() {
  const shown = state ? state.processes.filter(p => state.serves === "process" || opened.has(p.id)) : [];
  const isComplete = p => Array.isArray(p.managers) && p.managers.every(m => !m.history || histories.has(`${p.id}/${m.id}`));
  const complete = shown.length > 0 && shown.every(isComplete);
  return complete && !failure ? Math.max(0, Math.floor(state.now_second) - 2) : 0;
}
async function poll() {
  clearTimeout(timer);
  if (asking) asking.abort();
  const mine = asking = new AbortController(), patience = setTimeout(() => mine.abort(), kPatienceMs);
  try {
    const query = new URLSearchParams({ detail: ["auto", ...opened].join(","), since: since() });
    const answer = await fetch(`api/state.json?${query}`, { signal: mine.signal, cache: "no-store" });
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    state = await answer.json();
    received = Date.now();
    failure = "";
    const there = new Set(state.processes.map(p => p.id)), gone = [...opened].filter(id => !there.has(id));
    for (const id of gone) opened.delete(id);
    if (gone.length) {
      set(byId("gone"), `No longer known here: ${gone.map(id => `pid ${id.replace("-", ", run ")}`).join("; ")}.`);
      show(byId("gone"), true);
    }
    const [only] = state.processes;
    if (!chosen && state.serves === "machine" && state.processes.length === 1) opened.add(only.id);
    const living = new Map(state.processes.map(p => [p.id, Array.isArray(p.managers) ? new Set(p.managers.map(m => `${p.id}/${m.id}`)) : null]));
    for (const id of histories.keys()) {
      const managers = living.get(id.split("/")[0]);  // null: no details of this process, so nothing is known
      if (managers === undefined || (managers && !managers.has(id))) histories.delete(id);
    }
  } catch (error) {
    if (mine !== asking) return;  // another poll took its place
    failure = error.name === "AbortError" ? "it takes too long" : error.name === "TypeError" ? "no connection" : error.message;
  } finally {
    clearTimeout(patience);
  }
  if (mine !== asking) return;
  asking = null;
  redraw();
  if (!paused && !document.hidden) timer = setTimeout(poll, kPollMs);
}
byId("pause").addEventListener("click", () => {
  paused = !paused;
  put(byId("pause"), "aria-pressed", paused);
  set(byId("pause"), paused ? "Go on" : "Pause");
  if (paused) { clearTimeout(timer); redraw(); } else poll();
});
for (const id of ["filter", "sort"]) byId(id).addEventListener("input", redraw);
function openFromAddress() {
  const ids = idsIn(location.hash);
  opened.clear();
  for (const id of ids) opened.add(id);
  chosen = chosen || ids.length > 0;
}
openFromAddress();
addEventListener("hashchange", () => { openFromAddress(); redraw(); poll(); });
document.addEventListener("keydown", event => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || !byId("filter").checkVisibility()) return;
  if (["INPUT", "SELECT"].includes(document.activeElement.tagName)) return;
  event.preventDefault();
  byId("filter").focus();
});
document.addEventListener("visibilitychange", () => { if (!document.hidden && !paused) poll(); });
setInterval(() => { if (failure || (received && Date.now() - received > kOldAfterMs)) redraw(); }, 1000);
poll();
