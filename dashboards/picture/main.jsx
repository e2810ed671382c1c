// Draws one dashboard with Grafana's own components, from what a Prometheus answers.
//
// ?dashboard=UID&prometheus=URL&from=SECOND&to=SECOND&scrape=SECONDS&VARIABLE=VALUE…   A variable that is not named matches everything.
// @grafana/ui has no state timeline and no heatmap: those two are drawn here, with the colours of the panel.
import { createTheme, getDisplayValueAlignmentFactors, ThemeContext } from "@grafana/data";
import { BarGauge, BigValue, GlobalStyles, PanelChrome, Table, TimeSeries, VizLegend } from "@grafana/ui";
import { createRoot } from "react-dom/client";
import { configured, framesOf, makeAsker, nameOf, tableOf } from "./data.js";

const COLUMNS = 24;
const CELL = 38;
const theme = createTheme({ colors: { mode: "dark" } });
const dashboards = import.meta.glob("../grafana/*.json", { eager: true, import: "default" });

const displayed = (series, panel) => configured({ name: nameOf(series), type: "number", values: [] }, panel, theme);
const lastOf = (series) => Number(series.points.at(-1)[1]);

function Stat({ panel, series, width, height }) {
  const shown = series[0] && displayed(series[0], panel).display(lastOf(series[0]));
  return <BigValue value={{ ...(shown ?? { text: panel.fieldConfig.defaults.noValue ?? "No data", numeric: NaN }), title: "" }} theme={theme}
    width={width} height={height} {...panel.options} />;
}

function Bars({ panel, series, width, height }) {
  const each = Math.min(height / series.length, 44);
  const aligned = getDisplayValueAlignmentFactors(series.map((one) => ({ display: { ...displayed(one, panel).display(lastOf(one)), title: nameOf(one) } })));
  return [...series].sort((left, right) => lastOf(right) - lastOf(left)).map((one, index) => {
    const field = displayed(one, panel);
    return <BarGauge key={index} value={{ ...field.display(lastOf(one)), title: nameOf(one) }} field={field.config} display={field.display} theme={theme}
      width={width} height={each - 4} alignmentFactors={aligned} text={each < 36 ? undefined : { titleSize: 14, valueSize: 20 }} itemSpacing={4} orientation="horizontal" displayMode="basic" showUnfilled valueDisplayMode="color" />;
  });
}

function Timeline({ panel, series, width, height, asker }) {
  const names = 290, legend = 36;
  const rows = (height - legend) / series.length;
  const x = (second) => names + (second - asker.from) / (asker.to - asker.from) * (width - names);
  const field = displayed(series[0], panel);
  const levels = Object.entries(panel.fieldConfig.defaults.mappings[0].options);
  return <>
    <svg width={width} height={height - legend}>{series.map((one, row) => <g key={row}>
      <text x={0} y={rows * (row + 0.6)} fill={theme.colors.text.primary} fontSize={12}>{nameOf(one).slice(0, 46)}</text>
      {one.points.map(([second, value]) => <rect key={second} x={x(second)} y={rows * (row + 0.08)} height={rows * 0.84}
        width={Math.max(0, Math.min(x(second + asker.step) + 0.5, width) - x(second))} fill={field.display(Number(value)).color} fillOpacity={0.8} />)}
    </g>)}</svg>
    <VizLegend displayMode="list" placement="bottom" items={levels.map(([, { text, color }]) => ({ label: text, color: theme.visualization.getColorByName(color), yAxis: 1 }))} />
  </>;
}

function Heat({ panel, series, width, height, asker }) {
  const left = 70, bottom = 4;
  const bound = (one) => Number(one.labels.le.replace("+Inf", "Infinity"));
  const sorted = [...series].sort((a, b) => bound(a) - bound(b));
  const cells = sorted.flatMap((one, bucket) => {
    const below = new Map(bucket ? sorted[bucket - 1].points : []);
    return one.points.map(([second, value]) => ({ bucket, second, count: Number(value) - Number(below.get(second) ?? 0) })).filter(({ count }) => count > 1e-9);
  });
  if (!cells.length) return panel.fieldConfig.defaults.noValue ?? "No data";
  const most = Math.max(...cells.map(({ count }) => count));
  const lowest = Math.min(...cells.map(({ bucket }) => bucket)), highest = Math.max(...cells.map(({ bucket }) => bucket));
  const rows = (height - bottom) / (highest - lowest + 1);
  const x = (second) => left + (second - asker.from) / (asker.to - asker.from) * (width - left);
  const { display } = configured({ name: "", type: "number", values: [] }, { fieldConfig: { defaults: { unit: panel.options.yAxis.unit }, overrides: [] } }, theme);
  const every = Math.ceil(18 / rows);
  return <svg width={width} height={height}>
    {cells.map(({ bucket, second, count }) => <rect key={`${bucket} ${second}`} x={x(second)} width={Math.max(0, Math.min(x(second + asker.stepOf(panel)) - 1, width) - x(second))}
      y={height - bottom - rows * (bucket - lowest + 1)} height={Math.max(rows - 1, 1)} fill={`hsl(205 75% ${18 + 67 * Math.sqrt(count / most)}%)`} />)}
    {sorted.map((one, bucket) => bucket >= lowest && bucket <= highest && (bucket - lowest) % every === 0 && <text key={bucket} x={left - 6} textAnchor="end"
      y={height - bottom - rows * (bucket - lowest + 0.5) + 4} fontSize={11} fill={theme.colors.text.secondary}>
      {(({ text, suffix }) => `${text}${suffix ?? ""}`)(display(bound(one)))}</text>)}
  </svg>;
}

function Lines({ panel, series, width, height, asker }) {
  return <TimeSeries frames={framesOf(series, panel, asker)} width={width} height={height} timeZone="utc" theme={theme}
    timeRange={{ from: { valueOf: () => asker.from * 1000 }, to: { valueOf: () => asker.to * 1000 } }} legend={panel.options.legend} />;
}

const KINDS = { stat: Stat, bargauge: Bars, "state-timeline": Timeline, heatmap: Heat, timeseries: Lines };

function Content({ panel, series, width, height, asker }) {
  if (panel.type === "table" && series.length) return <Table data={tableOf(series, panel, theme)} width={width} height={height} />;
  if (panel.type !== "stat" && !series.length) {
    return <div style={{ textAlign: "center", paddingTop: height / 2 - 12, color: theme.colors.text.secondary }}>{panel.fieldConfig.defaults.noValue ?? "No data"}</div>;
  }
  const Kind = KINDS[panel.type];
  return <Kind {...{ panel, series, width, height, asker }} />;
}

function Panel({ panel, series, asker }) {
  const { x, y, w, h } = panel.gridPos;
  const column = (window.innerWidth - 16) / COLUMNS;
  const place = { position: "absolute", left: 8 + x * column, top: 8 + y * CELL, width: w * column - 8, height: h * CELL - 8 };
  if (panel.type === "row") return <div style={{ ...place, fontSize: 16, fontWeight: 500, color: theme.colors.text.primary }}>{panel.title}</div>;
  return <div style={place}><PanelChrome title={panel.title} description={panel.description} width={place.width} height={place.height} padding="md">
    {(width, height) => <div style={{ width, height, overflow: "hidden" }}><Content {...{ panel, series, width, height, asker }} /></div>}
  </PanelChrome></div>;
}

const { dashboard: uid, prometheus, from, to, scrape, ...variables } = Object.fromEntries(new URLSearchParams(location.search));
const asker = makeAsker({ prometheus, from: Number(from), to: Number(to), scrapeSeconds: Number(scrape), variables, theme });
const { panels } = dashboards[`../grafana/${uid}.json`];
const answers = await Promise.all(panels.map((panel) => panel.type === "row" ? [] : asker.askPanel(panel)));
createRoot(document.getElementById("dashboard")).render(<ThemeContext.Provider value={theme}>
  <GlobalStyles />
  {panels.map((panel, index) => <Panel key={panel.id} panel={panel} series={answers[index]} asker={asker} />)}
</ThemeContext.Provider>);
