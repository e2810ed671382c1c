// ── The last minutes ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

const histories = new Map();  // "process/manager" → what was read so far, second by second
let spanSeconds = 0;  // 0: nobody has chosen; as much as there is, up to five minutes
function remember(id, news, now, keepSeconds) {
  if (!news) return histories.get(id) || null;
  const past = histories.get(id) || new Map();
  news.low_bytes.forEach((low, i) => {
    if (!known(low)) return;
    const second = { low: num(low), high: num(news.high_bytes[i]), limit: news.budget_bytes[i], failures: num(news.failures[i]) };
    past.set(news.first_second + i, second);
  });
  for (const second of past.keys()) if (second < now - keepSeconds) past.delete(second);
  histories.set(id, past);
  return past;
}
function timeline(name) {
  const paths = Object.fromEntries(["area", "band", "line", "limits", "fails", "cursor"].map(kind => [kind, make("path", { class: kind })]));
  const svg = make("svg", { viewBox: "0 0 1000 100", preserveAspectRatio: "none", role: "img", tabindex: "0" }, ...Object.values(paths));
  const top = make("span", { class: "top" }), from = make("span"), said = make("span", { class: "said", "aria-live": "polite" });
  const spans = make("span", { class: "spans", role: "group", "aria-label": "How far back" });
  for (const [seconds, text] of [[60, "1 min"], [300, "5 min"], [600, "10 min"]]) {
    const button = make("button", { type: "button", "aria-label": `Show ${text}` }, text);
    button.addEventListener("click", () => { spanSeconds = seconds; redraw(); });
    button.seconds = seconds;
    spans.append(button);
  }
  const legend = legendOf(["u", "in use"], ["l", "budget"], ["f", "failed requests"]);
  const axis = make("div", { class: "axis" }, from, said, make("span", {}, "now"));
  const node = make("div", {}, make("div", { class: "head" }, spans, legend), make("div", { class: "plot" }, svg, top), axis);
  let past = null, now = 0, pointed = null, span = 60;
  function say() {
    const second = pointed === null ? null : Math.floor(now) - pointed, at = second === null ? null : past && past.get(second);
    paths.cursor.setAttribute("d", pointed === null ? "" : `M${1000 - pointed / span * 1000} 0V100`);
    const range = !at ? "not read" : at.low === at.high ? bytes(at.high) : `${bytes(at.low)} to ${bytes(at.high)}`;
    set(said, pointed === null ? "" : `${duration(pointed)} ago: ${range}` + (at && at.failures ? `, ${at.failures} failed` : ""));
  }
  const point = seconds => { pointed = seconds === null ? null : Math.max(0, Math.min(span - 1, seconds)); say(); };
  svg.addEventListener("pointermove", event => {
    const box = svg.getBoundingClientRect();
    point(Math.round((1 - (event.clientX - box.left) / box.width) * span));
  });
  svg.addEventListener("pointerleave", () => point(null));
  svg.addEventListener("blur", () => point(null));
  svg.addEventListener("keydown", event => {
    const step = { ArrowLeft: 1, ArrowRight: -1, PageUp: 30, PageDown: -30 }[event.key];
    if (event.key === "Escape") point(null);
    else if (step) { point((pointed || 0) + step); event.preventDefault(); }
  });
  function draw() {
    span = spanSeconds || (past && Math.min(...past.keys()) < now - 120 ? 300 : 60);  // a minute that is full, until there are two
    for (const button of spans.children) put(button, "aria-pressed", button.seconds === span);
    const first = Math.floor(now) - span, seconds = [...(past || [])].filter(([second]) => second > first).sort((a, b) => a[0] - b[0]);
    const most = Math.max(1, ...seconds.map(([, s]) => Math.max(s.high, num(s.limit)))) * 1.06;
    const x = second => ((second - first) / span * 1000).toFixed(1), y = value => (100 - value / most * 100).toFixed(2);
    let line = "", limits = "", fails = "", area = "", band = "", run = [], before = null, failures = 0;
    const close = () => {
      if (!run.length) return;
      const [newest, value] = run.at(-1);
      if (now - newest < kStepsLate) run.push([now, value]);  // the second that has just begun
      const along = (points, value) => points.map(([s, v]) => `${x(s)} ${y(value(v))}`).join("L"), highs = along(run, v => v.high);
      line += `M${highs}`;
      area += `M${highs}L${x(run.at(-1)[0])} 100L${x(run[0][0])} 100Z`;
      band += `M${highs}L${along(run.reverse(), v => v.low)}Z`;
      run = [];
    };
    for (const entry of seconds) {
      const [second, value] = entry, follows = before !== null && second - before <= kStepsLate;
      if (!follows) close();
      run.push(entry);
      if (known(value.limit)) limits += `${follows && limits ? "L" : "M"}${x(second)} ${y(num(value.limit))}`;
      if (value.failures) { fails += `M${x(second)} 100V88`; failures += value.failures; }
      before = second;
    }
    close();
    for (const [kind, d] of Object.entries({ area, band, line, limits, fails })) put(paths[kind], "d", d);
    set(top, seconds.length ? bytes(Math.round(most / 1.06)) : "nothing was read yet");
    set(from, `${duration(span)} ago`);
    const [least, greatest] = [Math.min(...seconds.map(([, s]) => s.low)), Math.max(...seconds.map(([, s]) => s.high))];
    const summary = seconds.length ? `, from ${bytes(least)} to ${bytes(greatest)}, ${failures} failed requests. Arrow keys tell single seconds.` : ": nothing was read yet";
    put(svg, "aria-label", `${name}: memory in use over the last ${duration(span)}${summary}`);
    say();
  }
  return { node, update(history, at) { past = history; now = at; draw(); } };
}

