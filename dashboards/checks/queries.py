"""Expressions: do they parse, and is there what they ask for?"""
import json
import re
import subprocess
import tempfile

import promql
from structure import name_of, panels_of

STAND_INS = {"$__rate_interval": "5m", "$__interval": "1m", "$__range": "1h"}
FOR_COUNTERS = {"rate", "irate", "increase"}
FOR_GAUGES = {"deriv", "delta", "idelta", "predict_linear"}
LABEL_VALUES = re.compile(r"label_values\((.+), (\w+)\)", re.DOTALL)
LEGEND_LABEL = re.compile(r"\{\{\s*(\w+)\s*\}\}")


def asked_by(dashboard):
    """(where, expression, legend or None) of every target and variable; what is no string is a finding of another check."""
    for panel in panels_of(dashboard):
        for target in panel.get("targets", []):
            if isinstance(target.get("expr"), str):
                yield f"{name_of(panel)}: target {target.get('refId')}", target["expr"], target.get("legendFormat", "")
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            match = LABEL_VALUES.fullmatch(variable["query"])
            # What is listed is a label of the series: asked for as a group, so that it is checked like one.
            yield f"variable '{variable['name']}'", f"count by ({match[2]}) ({match[1]})" if match else variable["query"], None


def parse_errors(expressions):
    """By place, what promtool says of those that do not parse."""
    rules = [{"record": f"expression:{place}", "expr": _without_variables(expr)} for place, expr in enumerate(expressions)]
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
        json.dump({"groups": [{"name": "dashboard", "rules": rules}]}, file)
        file.flush()
        done = subprocess.run(["promtool", "check", "rules", file.name], capture_output=True, text=True)
    said = done.stdout + done.stderr
    found = {int(place): what.strip() for place, what in
             re.findall(r'rule \d+, "expression:(\d+)": (.*)', said)}
    if done.returncode and not found:
        raise RuntimeError(f"promtool: {said}")
    return found


def _without_variables(expr):
    for variable, value in STAND_INS.items():
        expr = expr.replace(variable, value)
    return expr


def check_selector(selector, metrics, multiple):
    unknown = [name for name in selector.metrics if name not in metrics]
    for name in unknown:
        yield f"metric '{name}' is not served"
    if not selector.metrics:
        yield "a selector without a metric"
    if unknown or not selector.metrics:
        return
    labels = set().union(*(metrics[name].labels for name in selector.metrics))
    for label, operator, value in selector.matchers:
        if label not in labels:
            yield f"label '{label}' is on no series of {' or '.join(selector.metrics)}"
        if value.lstrip("$") in multiple and value.startswith("$") and operator != "=~":
            yield f"{label}{operator}\"{value}\": several values may be chosen, expected =~"
    for name in selector.metrics:
        if selector.function in FOR_COUNTERS and not metrics[name].only_grows:
            yield f"{selector.function}() of '{name}', which is a {metrics[name].type}"
        if selector.function in FOR_GAUGES and metrics[name].only_grows:
            yield f"{selector.function}() of '{name}', which is a {metrics[name].type}"


def check_labels(labels, selectors, metrics, what):
    known = [metrics[name].labels for selector in selectors for name in selector.metrics if name in metrics]
    for label in labels:
        if known and not any(label in having for having in known):
            yield f"{what} '{label}' is on none of its series"


def check_expression(expr, legend, metrics, multiple):
    try:
        expression = promql.read(expr)
    except ValueError as error:
        yield str(error)
        return
    for selector in expression.selectors:
        yield from check_selector(selector, metrics, multiple)
    for grouping in expression.groupings:
        yield from check_labels(grouping.labels, grouping.selectors, metrics, f"{grouping.word}: label")
    named = LEGEND_LABEL.findall(legend or "")
    groups = expression.labels_of_result
    if groups is None:
        yield from check_labels(named, expression.selectors, metrics, "legend: label")
    else:
        yield from (f"legend: label '{label}' is grouped away" for label in named if label not in groups)


def check(dashboard, metrics):
    """Findings, each a line of text. `metrics` as inventory.read() gives them."""
    asked = list(asked_by(dashboard))
    multiple = {variable["name"] for variable in dashboard["templating"]["list"] if variable.get("multi")}
    errors = parse_errors([expr for _, expr, _ in asked])
    for place, (where, expr, legend) in enumerate(asked):
        if place in errors:
            yield f"{where}: {errors[place]}"
            continue
        yield from (f"{where}: {finding}" for finding in check_expression(expr, legend, metrics, multiple))
