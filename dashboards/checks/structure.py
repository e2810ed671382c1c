"""What the schema of Grafana lets pass, and a person would notice only on the screen."""
import re

PANEL_TYPES = {"row", "timeseries", "stat", "bargauge", "state-timeline", "table", "heatmap"}
VARIABLE_TYPES = {"datasource", "query"}
UNITS = {"none", "short", "locale", "bytes", "binBps", "ops", "s", "percentunit", "dateTimeAsIso", "dateTimeFromNow"}
CHAIN = ("datasource", "job", "instance", "process", "device")  # each depends on all before it
OLDEST_SCHEMA = 39  # Grafana 11.0
NVIDIA_DCGM = "Oxed_c6Wz"
GRID = 24
LEAST_DESCRIPTION = 20  # characters: less says nothing
BUILT_IN = re.compile(r"__(rate_interval|interval|range|url_time_range|all|data\.fields\.\w+|field\.labels\.\w+)")
VARIABLE = re.compile(r"\$(?:(\w+)|\{([^}:]+)(?::\w+)?\})")


def panels_of(dashboard):
    return [inner for panel in dashboard["panels"] for inner in (panel, *panel.get("panels", []))]


def name_of(panel):
    return f"panel {panel.get('id')} '{panel.get('title')}'"


def texts_in(value):
    """All strings in there, with descriptions left out: those are for people."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key != "description":
                yield from texts_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from texts_in(inner)


def variables_in(value):
    return [bare or braced for text in texts_in(value) for bare, braced in VARIABLE.findall(text)]


def units_of(panel):
    config = panel["fieldConfig"]
    yield config["defaults"].get("unit")
    yield panel["options"].get("yAxis", {}).get("unit")
    for override in config["overrides"]:
        yield from (entry["value"] for entry in override["properties"] if entry["id"] == "unit")


def check_panel(panel):
    if panel["type"] not in PANEL_TYPES:
        yield f"type '{panel['type']}', expected one of {', '.join(sorted(PANEL_TYPES))}"
    if not panel.get("title"):
        yield "no title"
    if panel["type"] == "row":
        return
    if len(panel.get("description", "")) < LEAST_DESCRIPTION:
        yield "no description: say what it shows, and what to do when it looks bad"
    for unit in units_of(panel):
        if unit is not None and unit not in UNITS:
            yield f"unit '{unit}', expected one of {', '.join(sorted(UNITS))}"
    if not panel.get("targets"):
        yield "no target"
    seen = set()
    for target in panel.get("targets", []):
        expr, reference = target.get("expr"), target.get("refId")
        if not isinstance(expr, str) or not expr.strip():
            yield f"target {reference}: expr is {expr!r}, expected a string"
        if reference in seen:
            yield f"target {reference}: a second one of that refId"
        seen.add(reference)
    for place in (panel, *panel.get("targets", [])):
        if place.get("datasource") != {"type": "prometheus", "uid": "${datasource}"}:
            yield f"datasource {place.get('datasource')}, expected the variable ${{datasource}}"
            break


def check_layout(panels):
    """Every cell of the grid down to the last panel belongs to exactly one."""
    owners = {}
    for panel in panels:
        grid = panel["gridPos"]
        if min(grid["x"], grid["y"]) < 0 or min(grid["w"], grid["h"]) < 1 or grid["x"] + grid["w"] > GRID:
            yield f"{name_of(panel)}: at {grid}, which is not on the grid of {GRID} columns"
            continue
        cells = [(x, y) for x in range(grid["x"], grid["x"] + grid["w"]) for y in range(grid["y"], grid["y"] + grid["h"])]
        covered = next((owners[cell] for cell in cells if cell in owners), None)
        if covered:
            yield f"{name_of(panel)}: overlaps {covered}"
        owners.update(dict.fromkeys(cells, name_of(panel)))
    bottom = max((y for _, y in owners), default=-1) + 1
    gaps = [(x, y) for y in range(bottom) for x in range(GRID) if (x, y) not in owners]
    if gaps:
        yield f"a gap in the layout at column {gaps[0][0]}, line {gaps[0][1]}"


def check_variables(dashboard):
    variables = dashboard["templating"]["list"]
    names = [variable["name"] for variable in variables]
    known = set()
    for variable in variables:
        where = f"variable '{variable['name']}'"
        if variable["name"] in known:
            yield f"{where}: a second one of that name"
        if variable["type"] not in VARIABLE_TYPES:
            yield f"{where}: type '{variable['type']}', expected one of {', '.join(sorted(VARIABLE_TYPES))}"
        if not variable.get("description"):
            yield f"{where}: no description"
        if variable["type"] == "query":
            used = set(variables_in([variable["query"], variable["datasource"]]))
            for later in sorted(used - known):
                yield f"{where}: asks with ${later}, which does not stand before it"
            if variable["name"] in CHAIN:
                for missing in [name for name in CHAIN[:CHAIN.index(variable["name"])] if name not in used]:
                    yield f"{where}: is not chained to ${missing}"
        known.add(variable["name"])
    if [name for name in names if name in CHAIN] != list(CHAIN):
        yield f"variables {', '.join(names)}: expected {', '.join(CHAIN)} among them, in this order"


def check_links(dashboard, dashboards):
    for url in [text for text in texts_in([dashboard["links"], dashboard["panels"]]) if text.startswith("/d/")]:
        uid = re.match(r"/d/([\w-]*)", url)[1]
        if uid not in dashboards | {NVIDIA_DCGM}:
            yield f"link to {url}: no dashboard '{uid}'"


def check(dashboard, stem, dashboards):
    """Findings, each a line of text. `stem` is the file's name, `dashboards` are the uids that may be linked to."""
    if dashboard.get("uid") != stem:
        yield f"uid '{dashboard.get('uid')}', expected the file's name '{stem}': links and bookmarks depend on it"
    if dashboard.get("schemaVersion", 0) < OLDEST_SCHEMA:
        yield f"schemaVersion {dashboard.get('schemaVersion')}, expected {OLDEST_SCHEMA} or later"
    for key in ("__inputs", "__requires", "id"):
        if key in dashboard:
            yield f"{key}: a dashboard with it cannot be provisioned"
    panels = panels_of(dashboard)
    identities = [panel.get("id") for panel in panels]
    for identity in sorted({identity for identity in identities if identities.count(identity) > 1}):
        yield f"id {identity}: of {identities.count(identity)} panels"
    for panel in panels:
        yield from (f"{name_of(panel)}: {finding}" for finding in check_panel(panel))
    yield from check_layout(dashboard["panels"])
    yield from check_variables(dashboard)
    known = {variable["name"] for variable in dashboard["templating"]["list"]}
    for name in sorted(set(variables_in(dashboard)) - known):
        if not BUILT_IN.fullmatch(name):
            yield f"${name}: no such variable"
    yield from check_links(dashboard, dashboards)
