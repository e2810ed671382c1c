// What Prometheus answers, as data frames of Grafana, with the settings of the panel applied.
import { FieldType, getDisplayProcessor, toDataFrame } from "@grafana/data";

export function makeAsker({ prometheus, from, to, scrapeSeconds, variables, theme }) {
  const step = Math.max(scrapeSeconds, Math.ceil((to - from) / 400));
  // As Grafana does it: no shorter than the panel's own least interval.
  const stepOf = (panel) => Math.max(step, 60 * Number(panel.interval?.match(/^(\d+)m$/)?.[1] ?? 0));

  async function ask(panel, target) {
    const own = stepOf(panel);
    const builtIn = { __interval: `${own}s`, __range: `${to - from}s`, __rate_interval: `${Math.max(own + scrapeSeconds, 4 * scrapeSeconds)}s` };
    const fill = (text) => text.replace(/\$(?:\{(\w+)\}|(\w+))/g, (_, braced, bare) => builtIn[braced ?? bare] ?? variables[braced ?? bare] ?? ".*");
    const where = target.instant ? "query" : "query_range";
    const when = target.instant ? { time: to } : { start: from, end: to, step: own };
    const answer = await fetch(`${prometheus}/api/v1/${where}`, { method: "POST", body: new URLSearchParams({ query: fill(target.expr), ...when }) });
    const { status, data, error } = await answer.json();
    if (status !== "success") throw new Error(`${error}: ${target.expr}`);
    return data.result.map((series) => ({ labels: series.metric, points: series.values ?? [series.value], target }));
  }
  return { askPanel: async (panel) => (await Promise.all(panel.targets.map((target) => ask(panel, target)))).flat(), step, stepOf, from, to, theme };
}

export function nameOf({ labels, target }) {
  return target.legendFormat.replace(/\{\{\s*(\w+)\s*\}\}/g, (_, label) => labels[label] ?? "") || JSON.stringify(labels);
}

function setAt(object, path, value) {
  const keys = path.split(".");
  const last = keys.pop();
  keys.reduce((inner, key) => (inner[key] ??= {}), object)[last] = value;
}

function isMeant({ id, options }, name) {
  if (id === "byName") return options === name;
  const [, pattern, flags] = options.match(/^\/(.*)\/(\w*)$/);
  return new RegExp(pattern, flags).test(name);
}

export function configured(field, panel, theme) {
  const { defaults, overrides } = panel.fieldConfig;
  field.config = structuredClone(defaults);
  for (const { matcher, properties } of overrides) {
    if (isMeant(matcher, field.name)) properties.forEach(({ id, value }) => setAt(field.config, id, structuredClone(value)));
  }
  field.config.links = [];
  field.display = getDisplayProcessor({ field, theme });
  return field;
}

export function framesOf(series, panel, { from, to, step, theme }) {
  return series.map((one, index) => {
    const found = new Map(one.points.map(([second, value]) => [Math.round(second), Number(value)]));
    const times = [];
    for (let second = from; second <= to; second += step) times.push(second);
    const name = nameOf(one);
    const frame = toDataFrame({ name, refId: one.target.refId, fields: [
      { name: "Time", type: FieldType.time, values: times.map((second) => second * 1000) },
      { name, type: FieldType.number, values: times.map((second) => found.get(second) ?? null), labels: {} },
    ] });
    frame.fields[0].config = {};
    configured(frame.fields[1], panel, theme);
    frame.fields[1].config.displayName = name;
    frame.fields[1].state = { seriesIndex: index, displayName: name };
    return frame;
  });
}

// merge, organize: what the transformations of our tables do.
export function tableOf(series, panel, theme) {
  const { excludeByName, indexByName, renameByName } = panel.transformations[1].options;
  const rows = new Map();
  const groups = panel.targets.map(({ refId }) => series.filter(({ target }) => target.refId === refId)).filter((group) => group.length);
  const shared = Object.keys(series[0].labels).filter((label) => label !== "__name__" && groups.every((group) => group.some(({ labels }) => label in labels)));
  for (const { labels, points, target } of series) {
    const key = JSON.stringify((groups.length > 1 ? shared : Object.keys(labels)).map((label) => [label, labels[label]]));
    const row = rows.get(key) ?? rows.set(key, {}).get(key);
    Object.assign(row, labels, { [panel.targets.length > 1 ? `Value #${target.refId}` : "Value"]: Number(points[0][1]) });
  }
  const all = [...rows.values()];
  const names = [...new Set(all.flatMap(Object.keys))].filter((name) => !excludeByName[name]);
  names.sort((left, right) => (indexByName[left] ?? 99) - (indexByName[right] ?? 99));
  const sorted = renameByName && panel.options.sortBy[0] && Object.keys(renameByName).find((key) => renameByName[key] === panel.options.sortBy[0].displayName);
  if (sorted) all.sort((left, right) => (right[sorted] ?? -1) - (left[sorted] ?? -1));
  return toDataFrame({ fields: names.map((name) => {
    const isNumber = name.startsWith("Value");
    const field = { name: renameByName[name] ?? name, type: isNumber ? FieldType.number : FieldType.string, values: all.map((row) => row[name] ?? null) };
    return configured(field, panel, theme);
  }) });
}
