"""Panels of Grafana, one function for each type, and what all of them share: colours, units, thresholds, targets.

A colour means the same everywhere: those of pressure are those of the live status page, a budget is always the red dashed line, and a
tag, a reason or a process has the colour of its name in every panel; what is named by us goes by the order in its panel.
"""

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
MADE_FOR = "11.0.0"  # the oldest Grafana that the options below are for

NONE, LOW, MEDIUM, HIGH, CRITICAL = "green", "blue", "yellow", "orange", "red"
LEVELS = (("none", NONE), ("low", LOW), ("medium", MEDIUM), ("high", HIGH), ("critical", CRITICAL))
PRESSURE_STEPS = [(None, NONE), (1, LOW), (2, MEDIUM), (3, HIGH), (4, CRITICAL)]
PRESSURE_MAPPING = [{"type": "value", "options": {str(level): {"text": word, "color": colour, "index": level}
                                                  for level, (word, colour) in enumerate(LEVELS)}}]
# Shares of a budget at which the library changes its level: 70, 90, 95 and 100 %.
USE_STEPS = [(None, NONE), (0.7, LOW), (0.9, MEDIUM), (0.95, HIGH), (1, CRITICAL)]
NEVER = [(None, NONE), (1, CRITICAL)]   # for what should never happen
SELDOM = [(None, NONE), (1, HIGH)]      # for what may happen, and deserves a look
NEUTRAL = [(None, "text")]


def thresholds(steps):
    return {"mode": "absolute", "steps": [{"value": value, "color": colour} for value, colour in steps]}


def query(expr, legend="", kind="time_series", instant=False):
    target = {"expr": expr, "legendFormat": legend, "format": kind, "editorMode": "code", "datasource": DATASOURCE,
              "range": not instant, "instant": instant}
    return target


def now(expr, legend=""):
    """Asked once, for the end of the time that is shown."""
    return query(expr, legend, instant=True)


def column(expr):
    """Of a table: its labels are columns, and so is its value."""
    return query(expr, kind="table", instant=True)


def override(matcher, value, **properties):
    listed = [{"id": name.replace("__", "."), "value": setting} for name, setting in properties.items()]
    return {"matcher": {"id": matcher, "options": value}, "properties": listed}


def by_name(name, **properties):
    return override("byName", name, **properties)


def fixed(colour):
    return {"mode": "fixed", "fixedColor": colour}


def of_reasons():
    """The two that a fleet sees, apart from each other and from red; the others have the colours of their names."""
    return [by_name("over_budget", color=fixed(HIGH)), by_name("device_out_of_memory", color=fixed("purple"))]


def line(name, colour, dash=None, width=2):
    """An override: drawn over the areas of its panel and not stacked."""
    style = {"fill": "dash", "dash": dash} if dash else {"fill": "solid"}
    return by_name(name, color=fixed(colour), custom__stacking={"mode": "none", "group": "A"}, custom__fillOpacity=0,
                   custom__lineWidth=width, custom__lineStyle=style)


def panel(kind, title, description, targets, width, defaults, options, overrides=(), transformations=(), no_value=None):
    targets = [targets] if isinstance(targets, dict) else targets
    for letter, target in zip("ABCDEFGHIJ", targets, strict=False):
        target["refId"] = letter
    if no_value is not None:
        defaults = {**defaults, "noValue": no_value}
    made = {"type": kind, "title": title, "description": description, "datasource": DATASOURCE, "pluginVersion": MADE_FOR,
            "gridPos": {"w": width}, "fieldConfig": {"defaults": defaults, "overrides": list(overrides)}, "options": options,
            "targets": list(targets)}
    if transformations:
        made["transformations"] = list(transformations)
    return made


# So that a panel of zeros does not reach up to 100.
LEAST_TOP = {"short": 1, "ops": 1, "s": 1e-6, "bytes": 1 << 20, "binBps": 1 << 20}


def timeseries(title, description, targets, width, unit, *, style="line", stack=False, legend="list", fill=10, colour=None,
               steps=None, overrides=(), no_value=None, maximum=None, least_top=None):
    targets = [targets] if isinstance(targets, dict) else targets
    custom = {"drawStyle": style, "lineWidth": 1, "fillOpacity": 70 if style == "bars" else fill, "showPoints": "auto",
              "spanNulls": False, "stacking": {"mode": "normal" if stack else "none", "group": "A"}, "gradientMode": "none",
              "axisPlacement": "auto", "lineInterpolation": "linear", "pointSize": 4,
              "scaleDistribution": {"type": "linear"}, "thresholdsStyle": {"mode": "line" if steps else "off"}}
    if unit in LEAST_TOP:
        custom["axisSoftMax"] = least_top or LEAST_TOP[unit]
    named = any("{{" in target["legendFormat"] for target in targets)
    colour = colour or {"mode": "palette-classic-by-name" if named else "palette-classic"}
    defaults = {"unit": unit, "min": 0, "custom": custom, "color": colour, "thresholds": thresholds(steps or NEUTRAL)}
    if maximum is not None:
        defaults["max"] = maximum
    table = legend == "table"
    options = {"legend": {"showLegend": legend != "none", "displayMode": "table" if table else "list",
                          "placement": "right" if table else "bottom", "calcs": ["lastNotNull", "max"] if table else []},
               "tooltip": {"mode": "multi", "sort": "desc"}}
    return panel("timeseries", title, description, targets, width, defaults, options, overrides, no_value=no_value)


def finely(made):
    """$__interval of a figure that is asked for once: not that of the panel's width, so that a small panel counts as a large one does."""
    return {**made, "maxDataPoints": 1000}


def stat(title, description, target, width, unit, steps=NEUTRAL, *, mappings=(), no_value="unknown"):
    defaults = {"unit": unit, "color": {"mode": "thresholds"}, "thresholds": thresholds(steps), "mappings": list(mappings)}
    options = {"colorMode": "value", "graphMode": "none", "justifyMode": "center", "textMode": "value",
               "orientation": "auto", "wideLayout": True, "showPercentChange": False, "percentChangeColorMode": "standard",
               "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}}
    return finely(panel("stat", title, description, target, width, defaults, options, no_value=no_value))


def bargauge(title, description, target, width, unit, steps, *, minimum=0, maximum=None, decimals=None, links=(), no_value=None):
    defaults = {"unit": unit, "min": minimum, "color": {"mode": "thresholds"}, "thresholds": thresholds(steps), "links": list(links)}
    if maximum is not None:
        defaults["max"] = maximum
    if decimals is not None:
        defaults["decimals"] = decimals
    options = {"displayMode": "basic", "orientation": "horizontal", "valueMode": "color", "namePlacement": "auto",
               "showUnfilled": True, "sizing": "auto", "minVizWidth": 8, "minVizHeight": 16, "maxVizHeight": 300,
               "legend": {"showLegend": False, "displayMode": "list", "placement": "bottom", "calcs": []},
               "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}}
    return panel("bargauge", title, description, target, width, defaults, options, no_value=no_value)


def pressure_timeline(title, description, target, width, no_value=None):
    defaults = {"color": {"mode": "thresholds"}, "thresholds": thresholds(PRESSURE_STEPS), "mappings": PRESSURE_MAPPING,
                "custom": {"fillOpacity": 80, "lineWidth": 0}}
    options = {"mergeValues": True, "showValue": "never", "alignValue": "left", "rowHeight": 0.85,
               "legend": {"showLegend": True, "displayMode": "list", "placement": "bottom", "calcs": []},
               "tooltip": {"mode": "single", "sort": "none"}}
    return panel("state-timeline", title, description, target, width, defaults, options, no_value=no_value)


def heatmap(title, description, histogram, width, unit, no_value=None):
    """How many observations fell into each bucket of a Prometheus histogram in each interval. Of a minute or more, so that there are
    scrapes in it; and not $__rate_interval, which is longer than a step and would show each of them several times."""
    target = query(f"sum by (le) (increase({histogram}[$__interval]))", "{{le}}", kind="heatmap")
    options = {"calculate": False, "cellGap": 1, "cellValues": {}, "exemplars": {"color": "rgba(255,0,255,0.7)"},
               "color": {"mode": "scheme", "scheme": "Blues", "fill": "dark-blue", "scale": "exponential", "exponent": 0.5,
                         "steps": 64, "reverse": False, "min": 0},
               "filterValues": {"le": 1e-9}, "legend": {"show": True}, "rowsFrame": {"layout": "auto"}, "showValue": "never",
               "tooltip": {"mode": "single", "showColorScale": True, "yHistogram": True},
               "yAxis": {"unit": unit, "axisPlacement": "left", "reverse": False}}
    defaults = {"custom": {"hideFrom": {"legend": False, "tooltip": False, "viz": False}, "scaleDistribution": {"type": "linear"}}}
    return {**panel("heatmap", title, description, target, width, defaults, options, no_value=no_value), "interval": "1m"}


def table(title, description, columns, width, *, overrides=(), order=(), hide=(), sort=None, no_value=None):
    """`columns`: a heading for each query; rows with the same labels are one row."""
    renamed = {f"Value #{letter}": heading for letter, heading in zip("ABCDEFGHIJ", columns, strict=False)}
    if len(columns) == 1:
        renamed = {"Value": next(iter(columns))}
    hidden = {name: True for name in ("Time", "__name__", *hide)}
    places = {name: place for place, name in enumerate(order)}
    transformations = [{"id": "merge", "options": {}},
                       {"id": "organize", "options": {"excludeByName": hidden, "indexByName": places, "renameByName": renamed}}]
    defaults = {"color": {"mode": "thresholds"}, "thresholds": thresholds(NEUTRAL),
                "custom": {"align": "auto", "inspect": False, "minWidth": 60, "cellOptions": {"type": "auto"}}}
    options = {"showHeader": True, "cellHeight": "sm", "frameIndex": 0, "sortBy": []}
    if sort:
        options["sortBy"] = [{"displayName": sort, "desc": True}]
    return finely(panel("table", title, description, list(columns.values()), width, defaults, options, overrides, transformations, no_value))
