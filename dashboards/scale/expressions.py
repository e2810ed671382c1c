"""What dashboards and rules ask Prometheus: every expression of every panel and variable, with Grafana's variables filled in.

Python's standard library only.
"""
import json
import re
from dataclasses import dataclass, field
from pathlib import Path

DASHBOARDS = Path(__file__).resolve().parents[1]
VARIABLE = re.compile(r"\$\{(\w+)(?::\w+)?\}|\$(\w+)|\[\[(\w+)\]\]")
LABEL_VALUES = re.compile(r"^\s*label_values\(\s*(?:(?P<expression>.+?)\s*,\s*)?(?P<label>\w+)\s*\)\s*$", re.S)
QUERY_RESULT = re.compile(r"^\s*query_result\((?P<expression>.+)\)\s*$", re.S)


@dataclass
class Asked:
    """One question: `kind` is instant, range or label_values (then `label` is its label, and `expression` may be empty)."""
    where: str
    kind: str
    expression: str
    label: str = ""
    raw: str = field(default="", compare=False)


def fill(expression, values):
    """Names that `values` does not have are an error: Prometheus would be asked something else than Grafana asks."""
    def value(match):
        name = next(group for group in match.groups() if group)
        if name not in values:
            raise ValueError(f"${name} is no variable that is known: {expression}")
        return values[name]
    return VARIABLE.sub(value, expression)


def panels_of(dashboard):
    for panel in dashboard.get("panels", []):
        yield panel
        yield from panels_of(panel)


class Dashboard:
    def __init__(self, path):
        self.name = Path(path).stem
        content = json.loads(Path(path).read_text())
        self.variables = content.get("templating", {}).get("list", [])
        self.targets = [(panel.get("title") or str(panel.get("id")), target) for panel in panels_of(content)
                        for target in panel.get("targets", []) if "expr" in target]
        self.annotations = [note for note in content.get("annotations", {}).get("list", []) if note.get("expr")]

    def variable_query(self, variable, values):
        """What a variable of type query asks, the variables before it filled in."""
        query = variable["query"]
        raw = query if isinstance(query, str) else query.get("query", "")
        text, where = fill(raw, values), f"{self.name} / ${variable['name']}"
        if match := LABEL_VALUES.match(text):
            return Asked(where, "label_values", match["expression"] or "", match["label"], raw)
        if match := QUERY_RESULT.match(text):
            return Asked(where, "instant", match["expression"], raw=raw)
        raise ValueError(f"{where}: '{raw}' is neither label_values nor query_result")

    def choices(self, values, options_of, asked):
        """Every set of values that a person can choose, as Grafana fills them in: of several values all at once, of single ones each.

        `values`: Grafana's own variables. `options_of(Asked)`: what a variable's query answers. Its questions are added to `asked`."""
        chosen = [dict(values)]
        for variable in self.variables:
            name, kind = variable["name"], variable.get("type")
            further = []
            for known in chosen:
                if kind == "query":
                    question = self.variable_query(variable, known)
                    asked.append(question)
                    options = options_of(question)
                    if variable.get("includeAll"):
                        options = [variable.get("allValue") or "(" + "|".join(map(escaped, options)) + ")"]
                elif kind == "datasource":
                    options = ["prometheus"]
                else:
                    options = [str((variable.get("current") or {}).get("value") or variable.get("query", "").split(",")[0].strip())]
                further += [{**known, name: option} for option in options or [""]]
            chosen = further
        return chosen

    def questions(self, values):
        """Of all panels and annotations, in order."""
        found = [Asked(f"{self.name} / {title} / {target.get('refId', '?')}", "instant" if target.get("instant") else "range",
                       fill(target["expr"], values), raw=target["expr"]) for title, target in self.targets]
        return found + [Asked(f"{self.name} / annotation {note.get('name')}", "range", fill(note["expr"], values), raw=note["expr"])
                        for note in self.annotations]


def escaped(value):
    """Of a label, as a regular expression in a string of PromQL."""
    return re.sub(r"([\\^$*+?.()|{}\[\]])", r"\\\\\1", value)


def of_rules(rules):
    """Of what /api/v1/rules lists: the expressions as Prometheus has read them."""
    return [Asked(f"{'alert' if rule['type'] == 'alerting' else 'record'} {rule['name']}", "instant", rule["query"], raw=rule["query"])
            for rule in rules]


def dashboard_files():
    return sorted((DASHBOARDS / "grafana").glob("*.json"))
