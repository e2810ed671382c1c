"use strict";
const kPollMs = 1000, kPatienceMs = 15000, kOldAfterMs = 4000, kMostOpened = 16;
const kStepsLate = 3;  // seconds that a reading may come late before it is a gap
const byId = id => document.getElementById(id);

// ── Words and figures ────────────────────────────────────────────────────────────────────────────────────────────────────────────

// Figures above 2^53 are strings; what is unknown is null, and shown as a dash.
const known = value => value !== null && value !== undefined;
const num = value => known(value) ? Number(value) : 0;
const count = value => known(value) ? String(value).replace(/\B(?=(\d{3})+$)/g, ",") : "–";
// As the command line has it: three digits, rounded to the nearest.
function bytes(value) {
  if (!known(value)) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"], exact = BigInt(value);
  let unit = 0;
  while (unit < 6 && exact >> BigInt(10 * (unit + 1)) !== 0n) ++unit;
  for (;; ++unit) {
    const shift = BigInt(10 * unit), whole = exact >> shift, decimals = unit === 0 || whole >= 100n ? 0 : whole < 10n ? 2 : 1;
    const scale = 10n ** BigInt(decimals), half = unit === 0 ? 0n : 1n << (shift - 1n), digits = (exact * scale + half) >> shift;
    if (unit > 0 && unit < 6 && digits >= 1024n * scale) continue;
    const rest = decimals === 0 ? "" : String(digits % scale).padStart(decimals, "0").replace(/0+$/, "");
    return `${digits / scale}${rest ? "." + rest : ""} ${units[unit]}`;
  }
}
function duration(seconds) {
  if (!known(seconds)) return "–";
  const s = Math.max(0, Math.floor(seconds));
  if (seconds > 0 && seconds < 0.001) return `${Math.ceil(seconds * 1e6)} µs`;
  if (seconds > 0 && seconds < 1) return `${Math.floor(seconds * 1000)} ms`;
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min` + (s % 60 ? ` ${s % 60} s` : "");
  return s < 86400 ? `${Math.floor(s / 3600)} h ${Math.floor(s % 3600 / 60)} min` : `${Math.floor(s / 86400)} d ${Math.floor(s % 86400 / 3600)} h`;
}
// Controls become their pictures; marks that turn the direction of writing, which could dress one name up as another, are replaced.
const clean = name => !name ? "(no name)" : name.replace(/[\u0000-\u001f]/g, c => String.fromCharCode(0x2400 + c.charCodeAt(0)))
  .replace(/[\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2028\u2029\u2066-\u2069]/g, "\ufffd");
const percent = (part, whole) => num(part) > 10 * num(whole) ? "more than tenfold" : `${num(whole) > 0 ? Math.floor(num(part) / num(whole) * 100) : 0} %`;
const share = (part, whole) => num(whole) > 0 ? Math.min(100, num(part) / num(whole) * 100) : 0;

// ── The page in place ────────────────────────────────────────────────────────────────────────────────────────────────────────────

// Nodes are made once and changed only where something is new: no flicker, and focus and selection stay where they are.
function make(tag, attributes = {}, ...children) {
  const svg = ["svg", "path"].includes(tag);
  const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}
const set = (node, text) => { if (node.textContent !== text) node.textContent = text; };
const put = (node, name, value) => { if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value); };
const show = (node, yes) => { if (node.hidden === yes) node.hidden = !yes; };
const place = (node, left, width) => { node.style.left = `${left}%`; if (width !== undefined) node.style.width = `${width}%`; };
/// A figure that can be read exactly by whoever looks closer.
function figure(node, value, text = bytes(value)) {
  set(node, text);
  put(node, "value", known(value) ? value : "");
  put(node, "title", known(value) ? `${count(value)} B` : "not known");
}
/// Keeps the children of `parent` in step with `items`; `row` makes an object with a `node` and an `update`.
const kept = new WeakMap();
function keep(parent, items, key, row) {
  if (!kept.has(parent)) kept.set(parent, new Map());
  const rows = kept.get(parent), wanted = new Set(items.map(key));
  for (const [id, one] of rows) if (!wanted.has(id)) { one.node.remove(); rows.delete(id); }
  items.forEach((item, index) => {
    const id = key(item, index);
    if (!rows.has(id)) rows.set(id, row(item));
    const { node, update } = rows.get(id);
    if (parent.children[index] !== node) parent.insertBefore(node, parent.children[index] || null);
    update(item);
  });
}
function list(...entries) {
  const node = make("dl"), cells = {};
  for (const [name, label] of entries) {
    cells[name] = make("data");
    node.append(make("div", { "data-name": name }, make("dt", {}, label), make("dd", {}, cells[name])));
  }
  const showOnly = (name, yes, bad) => {
    const box = cells[name].closest("div");
    show(box, yes);
    box.classList.toggle("bad", !!bad);
  };
  return { node, cells, showOnly };
}
function table(label, ...titles) {
  const body = make("tbody"), head = make("tr");
  for (const title of titles) {
    const isNumber = title.startsWith(">");
    head.append(make("th", isNumber ? { scope: "col", class: "n" } : { scope: "col" }, title.replace(">", "")));
  }
  const whole = make("table", {}, make("thead", {}, head), body);
  return { body, node: make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, whole) };
}
/// What the colours mean; for eyes alone, since the words are elsewhere. Entries are [class, text].
function legendOf(...entries) {
  return make("div", { class: "legend", "aria-hidden": "true" }, ...entries.map(([kind, text]) => make("b", { class: kind }, text)));
}
function card(title, ...content) {
  return make("section", { class: "card" }, make("div", { class: "head" }, make("h3", {}, title)), ...content);
}
const cell = (...content) => make("td", {}, ...content);
const numberCell = (...content) => make("td", { class: "n" }, ...content);
const joined = parts => parts.filter(Boolean).join(" · ");
const level = pressure => ["none", "low", "medium", "high", "critical"].includes(pressure) ? pressure : "none";

// ── A budget as a bar ────────────────────────────────────────────────────────────────────────────────────────────────────────────

/// `inRow`: small, among others, where a mark at the very end would be no more than a speck.
function budgetBar(label, inRow) {
  const parts = Object.fromEntries(["claimed", "used", "peak", "limit"].map(name => [name, make("i", { class: name })]));
  const node = make("div", { class: "bar", role: "meter", "aria-label": label, "aria-valuemin": "0" }, ...Object.values(parts));
  return { node, update(m, ofDevice) {
    const limit = m.budget_bytes, whole = Math.max(num(limit), num(m.claimed_bytes), num(m.peak_bytes), known(limit) ? 0 : num(ofDevice), 1);
    put(node, "class", `bar ${level(m.pressure)}${known(limit) ? "" : " free"}`);
    place(parts.used, 0, share(m.allocated_bytes, whole));
    place(parts.claimed, 0, share(m.claimed_bytes, whole));
    place(parts.peak, Math.min(share(m.peak_bytes, whole), 99.7));
    show(parts.peak, num(m.peak_bytes) > 0 && !(inRow && share(m.peak_bytes, whole) > 99));
    place(parts.limit, Math.min(share(limit, whole), 99.5));
    const exceeded = known(limit) && num(limit) < whole;
    show(parts.limit, exceeded);
    put(node, "aria-valuemax", whole);
    put(node, "aria-valuenow", num(m.claimed_bytes));
    const budget = known(limit) ? `budget ${bytes(limit)}, pressure ${m.pressure}` : "no budget";
    put(node, "aria-valuetext", `${bytes(m.allocated_bytes)} in use, ${budget}`);
    return exceeded;
  } };
}

