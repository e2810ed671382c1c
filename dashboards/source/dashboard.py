"""A dashboard of Grafana: its variables, its links, and rows of panels laid out on the grid of 24 columns."""

GRID = 24
SCHEMA_VERSION = 39  # of Grafana 11.0; later ones read it and convert it by themselves
NVIDIA_DCGM_UID = "Oxed_c6Wz"  # of the dashboard that comes with NVIDIA's dcgm-exporter


class Row:
    """A heading and lines of panels below it; each line is as high as it says and exactly as wide as the grid."""

    def __init__(self, title, *lines):
        self.title = title
        self.lines = lines  # (height, [panel…])


def lay_out(rows):
    """Numbers are those of the row: what is added to one row changes the address of no panel of another."""
    placed, y = [], 0
    for number, row in enumerate(rows, 1):
        placed.append({"type": "row", "id": 100 * number, "title": row.title, "collapsed": False, "panels": [],
                       "gridPos": {"x": 0, "y": y, "w": GRID, "h": 1}})
        y += 1
        identity = 100 * number
        for height, panels in row.lines:
            x = 0
            for panel in panels:
                identity += 1
                width = panel["gridPos"]["w"]
                placed.append({**panel, "id": identity, "gridPos": {"x": x, "y": y, "w": width, "h": height}})
                x += width
            if x != GRID:
                raise ValueError(f"row '{row.title}': a line is {x} wide, expected {GRID}")
            y += height
    return placed


def datasource_variable():
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "regex": "", "hide": 0,
            "refresh": 1, "includeAll": False, "multi": False, "options": [],
            "description": "The Prometheus that scrapes headroom's exporters."}


def variable(name, label, query, description, *, every=True, hidden=False, regex=""):
    """`every`: several values may be chosen, and all are at first; a label that a series does not have then matches as well."""
    made = {"name": name, "label": label, "type": "query", "query": query, "description": description,
            "datasource": {"type": "prometheus", "uid": "${datasource}"}, "refresh": 2, "sort": 1, "regex": regex,
            "hide": 2 if hidden else 0, "includeAll": every, "multi": every, "options": []}
    if every:
        made["allValue"] = ".*"
        made["current"] = {"text": ["All"], "value": ["$__all"], "selected": True}
    return made


def dcgm_variables(uuids):
    """DCGM's own names of the GPUs with these UUIDs, for the link to NVIDIA's dashboard; nothing without dcgm-exporter."""
    found = f'DCGM_FI_DEV_GPU_TEMP{{UUID=~"{uuids}"}}'
    return [variable("dcgm_instance", "DCGM instance", f"label_values({found}, instance)",
                     "The dcgm-exporter that knows the chosen GPU.", every=False, hidden=True),
            variable("dcgm_gpu", "DCGM GPU", f"label_values({found}, gpu)", "The chosen GPU's number there.", every=False, hidden=True)]


def link(title, url, tooltip, *, with_variables=False):
    return {"type": "link", "title": title, "url": url, "tooltip": tooltip, "icon": "dashboard", "tags": [], "asDropdown": False,
            "includeVars": with_variables, "keepTime": True, "targetBlank": False}


def dcgm_link():
    return link("GPU in DCGM", f"/d/{NVIDIA_DCGM_UID}?var-instance=${{dcgm_instance:percentencode}}&var-gpu=${{dcgm_gpu:percentencode}}",
                "The chosen GPU, found by its UUID, on the dashboard of NVIDIA's dcgm-exporter: temperature, power, utilisation")


def dashboard(uid, title, description, variables, links, rows, since):
    return {"uid": uid, "title": title, "description": description, "tags": ["headroom", "gpu"], "schemaVersion": SCHEMA_VERSION,
            "version": 1, "editable": True, "graphTooltip": 1, "timezone": "browser", "refresh": "30s", "fiscalYearStartMonth": 0,
            "weekStart": "", "liveNow": False, "time": {"from": since, "to": "now"}, "timepicker": {},
            "annotations": {"list": []}, "links": links, "templating": {"list": variables}, "panels": lay_out(rows)}
