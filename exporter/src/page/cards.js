// ── Cards ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

function managerCard(first) {
  const name = make("h3", { class: "clamp" }), chip = make("span"), device = make("span", { class: "soft" }), note = make("span", { class: "soft" });
  const used = make("data", { class: "big", "data-name": "allocated" }), of = make("span", { class: "soft" });
  const bar = budgetBar(`Budget of ${clean(first.name)}`), plot = timeline(clean(first.name));
  const figures = list(["claimed", "claimed"], ["remaining", "left"], ["over", "over budget"], ["peak", "peak"],
    ["unspent", "reserved, not in use"], ["live", "live allocations"], ["failures", "failed requests"],
    ["waiters", "waiting for room"], ["failed_frees", "failed frees"]);
  const legend = legendOf(["u", "in use"], ["c", "claimed"], ["p", "peak"], ["l", "budget, below what is drawn"]), exceeded = legend.lastChild;
  const tags = table("Tags", "Tag", "Share", ">Now", ">At peak", ">Count"), rest = make("p", { class: "soft more" });
  const right = make("div", {}, tags.node, rest);
  const node = make("section", { class: "card wide", "data-manager": first.id }, make("div", { class: "head" }, name, chip, device),
    make("div", {}, used, " ", of, " ", note), bar.node, legend, figures.node, make("div", { class: "split" }, plot.node, right));
  return { node, update({ m, process, now, keepSeconds }) {
    const on = known(m.device) ? process.devices[m.device] : null, limit = m.budget_bytes, has = known(limit);
    set(name, `manager ${clean(m.name)}`);
    put(name, "title", clean(m.name));
    put(chip, "class", `chip ${level(m.pressure)}`);
    set(chip, has ? `pressure ${m.pressure}` : "no budget");
    set(device, on ? `on ${clean(on.name)}${known(on.ordinal) ? `, device ${on.ordinal}` : ""}` : "");
    figure(used, m.allocated_bytes);
    set(of, has ? `of ${bytes(limit)} in use (${percent(m.allocated_bytes, limit)})` : "in use, budget unlimited");
    put(of, "title", has ? `${count(limit)} B` : "");
    set(note, has && !m.enforcing ? "· the budget only observes" : "");
    show(exceeded, bar.update(m, on && on.total_bytes));
    const { cells, showOnly } = figures;
    figure(cells.claimed, m.claimed_bytes);
    figure(cells.remaining, m.remaining_bytes);
    showOnly("remaining", has && num(m.over_budget_bytes) === 0);
    figure(cells.over, m.over_budget_bytes);
    showOnly("over", num(m.over_budget_bytes) > 0, true);
    figure(cells.peak, m.peak_bytes);
    figure(cells.unspent, m.reserved_unspent_bytes);
    showOnly("unspent", num(m.reserved_unspent_bytes) > 0);
    const counts = { live: m.live_allocations, failures: m.failures, waiters: m.waiters, failed_frees: m.failed_frees };
    for (const [what, value] of Object.entries(counts)) {
      figure(cells[what], value, count(value));
      put(cells[what], "title", "");
      showOnly(what, what === "live" || what === "failures" || num(value) > 0, what !== "live" && num(value) > 0);
    }
    plot.update(remember(`${process.id}/${m.id}`, m.history, now, keepSeconds), now);
    const most = Math.max(1, ...m.tags.list.map(tag => Math.max(num(tag.bytes), num(tag.at_peak_bytes))));
    keep(tags.body, m.tags.list, (tag, i) => i, () => {
      const tag = make("bdi", { class: "clamp" }), held = make("data"), peak = make("data"), allocations = numberCell();
      const parts = [make("i", { class: "claimed" }), make("i", { class: "used" })];
      const bar = make("td", { class: "share" }, make("div", { class: "bar", "aria-hidden": "true" }, ...parts));
      const row = make("tr", {}, make("td", { class: "tag" }, tag), bar, numberCell(held), numberCell(peak), allocations);
      return { node: row, update(one) {
        set(tag, clean(one.name));
        put(tag, "title", clean(one.name));
        figure(held, one.bytes);
        figure(peak, one.at_peak_bytes);
        set(allocations, count(one.allocations));
        place(parts[0], 0, share(one.at_peak_bytes, most));
        place(parts[1], 0, share(one.bytes, most));
      } };
    });
    const more = m.tags.left_out, others = more === 1 ? "1 more tag holds" : `${count(more)} more tags hold`;
    set(rest, more ? `${others} ${bytes(m.tags.left_out_bytes)}.` : m.tags.list.length ? "" : "No allocation yet.");
  } };
}
function deviceCard() {
  const name = make("h3"), what = make("span", { class: "soft" }), outside = make("i", { class: "outside" }), used = make("i", { class: "used" });
  const bar = make("div", { class: "bar", role: "meter", "aria-valuemin": "0" }, outside, used), note = make("p", { class: "soft more" });
  const figures = list(["total", "memory"], ["ours", "this program"], ["outside", "used outside its books"], ["free", "free"],
    ["budget", "budget of the device"], ["claimed", "claimed from it"], ["pending", "freed, not back yet"]);
  const legend = legendOf(["u", "this program"], ["o", "others, contexts, libraries"]);
  const node = make("section", { class: "card" }, make("div", { class: "head" }, name, what), bar, legend, figures.node, note);
  return { node, update({ d, place: at, process }) {
    const ours = process.managers.filter(m => m.device === at).reduce((sum, m) => sum + num(m.allocated_bytes), 0), whole = num(d.total_bytes);
    set(name, clean(d.name));
    set(what, joined([known(d.ordinal) && `device ${d.ordinal}`, d.uuid && clean(d.uuid), d.pci_address && clean(d.pci_address)]));
    show(bar, whole > 0);
    show(legend, whole > 0);
    place(used, 0, share(ours, whole));
    place(outside, share(ours, whole), Math.min(share(d.outside_bytes, whole), 100 - share(ours, whole)));
    put(bar, "aria-label", `Memory of ${clean(d.name)}`);
    put(bar, "aria-valuemax", whole);
    put(bar, "aria-valuenow", ours);
    put(bar, "aria-valuetext", `${bytes(ours)} of ${bytes(d.total_bytes)} by this program, ${bytes(d.free_bytes)} free`);
    const values = { total: d.total_bytes, ours, outside: d.outside_bytes, free: d.free_bytes, budget: d.budget_bytes,
      claimed: d.claimed_bytes, pending: d.pending_free_bytes };
    for (const [name, value] of Object.entries(values)) {
      figure(figures.cells[name], value);
      figures.showOnly(name, known(value) && (name !== "pending" || num(value) > 0));
    }
    const seen = d.seen_by === "driver" ? "As the driver says now." : "As the program last saw it.";
    set(note, whole === 0 ? "How much memory it has is not known." : seen);
  } };
}
/// A storm of requests that all ended alike is one entry: the newest of them, and how many there were.
function grouped(failures) {
  const groups = [];
  for (const one of failures) {
    const last = groups.at(-1), like = JSON.stringify([one.manager, one.tag, one.reason, one.outcome, one.done, one.site]);
    if (last && last.like === like) { ++last.alike; last.first_age = one.age_seconds; }
    else groups.push({ ...one, like, alike: 1 });
  }
  return groups;
}
function failuresCard() {
  const none = make("p", { class: "soft" }), items = make("ol", { class: "failures" });
  const node = card("Last failures, and what was done about each", none, items);
  return { node, update({ process, age }) {
    const failures = grouped(process.last_failures);
    const before = "Requests failed before this page's server began to look; the figures count them all.";
    set(none, failures.length ? "" : num(process.failures) > 0 ? before : "No request was refused.");
    show(none, !failures.length);
    keep(items, failures, (one, i) => i, () => {
      const what = make("div", { class: "what" }), done = make("ol"), outcome = make("span"), when = make("div", { class: "soft" });
      return { node: make("li", {}, what, done, outcome, when), update(one) {
        set(what, clean(one.what));
        show(done, one.done.length > 0);
        keep(done, one.done, (text, i) => i, () => { const li = make("li"); return { node: li, update: text => set(li, clean(text)) }; });
        put(outcome, "class", `outcome ${one.end}`);
        set(outcome, clean(one.outcome));
        const alike = one.alike > 1 && `and ${one.alike - 1} more like it since ${duration(one.first_age + age)} ago`;
        set(when, joined([`${duration(one.age_seconds + age)} ago`, one.manager && `manager ${clean(one.manager)}`,
          one.site && clean(one.site).split(" ")[0], `thread ${one.thread}`, alike]));
      } };
    });
  } };
}
function hooksCard() {
  const none = make("p", { class: "soft" }, "No hook is registered.");
  const hooks = table("Hooks", "Hook", ">Runs", ">Freed", ">Errors", ">Skipped", ">Time", "Now"), node = card("Hooks", none, hooks.node);
  return { node, update({ process }) {
    show(none, process.hooks.length === 0);
    show(hooks.node, process.hooks.length > 0);
    keep(hooks.body, process.hooks, (hook, i) => i, () => {
      const name = make("bdi"), owner = make("div", { class: "soft" }), freed = make("data"), now = cell();
      const [runs, errors, skipped, time] = [0, 1, 2, 3].map(() => numberCell());
      const row = make("tr", {}, make("td", { class: "tag" }, name, owner), runs, numberCell(freed), errors, skipped, time, now);
      return { node: row, update(hook) {
        set(name, clean(hook.name));
        set(owner, hook.manager ? `of ${clean(hook.manager)}` : "");
        set(runs, count(hook.runs));
        figure(freed, hook.freed_bytes);
        set(errors, count(hook.errors));
        set(skipped, count(num(hook.skips) + num(hook.busy_skips)));
        set(time, duration(hook.seconds));
        const runs_for = hook.running_seconds, late = known(runs_for) && known(hook.limit_seconds) && runs_for > hook.limit_seconds;
        put(now, "class", late ? "critical" : known(runs_for) ? "medium" : "soft");
        const limit = late ? `, limit ${duration(hook.limit_seconds)}` : "";
        set(now, known(runs_for) ? `running for ${duration(runs_for)}${limit}` : "idle");
      } };
    });
  } };
}
function threadsCard() {
  const note = make("p", { class: "soft" }), threads = table("Threads", "Thread", "Doing", ">For");
  const node = card("What threads are doing", threads.node, note);
  return { node, update({ process }) {
    const { busy, attached } = process.threads, idle = Math.max(0, attached - new Set(busy.map(one => one.thread)).size);
    show(threads.node, busy.length > 0);
    const none = attached === 0 ? "No thread has used headroom yet." : attached === 1 ? "The one thread that uses headroom is not in it now."
      : `None of the ${attached} threads that use headroom is in it now.`;
    set(note, busy.length ? `Of those that use headroom, ${idle} ${idle === 1 ? "is" : "are"} not in it now.` : none);
    keep(threads.body, busy, (one, i) => i, () => {
      const name = make("bdi"), doing = cell(), time = numberCell();
      return { node: make("tr", {}, cell(name), doing, time), update(one) {
        set(name, `${one.thread === 0 ? "?" : one.thread}${one.name ? ` ${clean(one.name)}` : ""}`);
        set(doing, clean(one.doing) + (one.manager ? ` for ${clean(one.manager)}` : ""));
        set(time, duration(one.seconds));
      } };
    });
  } };
}
function lossesCard() {
  const items = make("ul"), node = card("What this reader missed", items);
  return { node, update({ process, errors }) {
    const l = process.losses, lost = `${count(l.events_lost)} of ${count(l.events_recorded)} events were overwritten before they were read. Figures`;
    const lines = [
      l.events_off && "Events are switched off (HEADROOM_FLIGHT=off): figures are exact, but there is no story.",
      num(l.events_lost) > 0 ? `${lost} and counts of failures come from the books, and are exact.`
        : `Nothing of the ${count(l.events_recorded)} events so far was overwritten unread.`,
      num(l.events_refused) > 0 && `${count(l.events_refused)} events could not be recorded by the program; its books have their bytes.`,
      num(l.failures_forgotten) > 0 && `${count(l.failures_forgotten)} older failures are no longer kept.`,
      num(l.tags_folded) > 0 && `${count(l.tags_folded)} tags found no place of their own and count as other.`,
      num(l.managers_without_books) > 0 && `${count(l.managers_without_books)} managers found no place in the books.`,
      l.was_shrunk && "The flight file is smaller than usual, for its folder is short of room.",
      num(errors) > 0 && `The exporter met ${count(errors)} errors.`].filter(Boolean);
    keep(items, lines, (line, i) => i, () => { const li = make("li", { class: "soft" }); return { node: li, update: line => set(li, line) }; });
  } };
}

