"""The dashboards are what Grafana's own types say; mistakes that these types know of are found.

Without npm or its registry: skipped, 77.
"""
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

DASHBOARDS = Path(__file__).resolve().parents[2] / "dashboards"

# Each is planted alone: it gets the dashboard and its panels by title, and what is said of it follows.
MISTAKES = (
    (lambda d, panels: panels["Peak"]["gridPos"].update(h="4"),
     "panel 105 'Peak': /gridPos/h must be number"),
    (lambda d, panels: panels["Peak"].update(discription=""),
     "panel 105 'Peak':  must NOT have additional properties: discription"),
    (lambda d, panels: panels["Peak"]["options"].update(graphMode="bars"),
     "panel 105 'Peak': options/graphMode must be equal to one of the allowed values: area, line, none"),
    (lambda d, panels: panels["Sizes of allocations"]["options"].update(calculated=False),
     "panel 504 'Sizes of allocations': options must NOT have additional properties: calculated"),
    (lambda d, panels: panels["Pressure"]["options"].update(showValue="sometimes"),
     "panel 203 'Pressure': options/showValue must be equal to one of the allowed values: always, auto, never"),
    (lambda d, panels: panels["Allocations and frees"]["fieldConfig"]["defaults"]["custom"].update(drawStyle="curve"),
     "panel 501 'Allocations and frees': custom/drawStyle must be equal to one of the allowed values: bars, line, points"),
    (lambda d, panels: panels["Peak"].update(type="timeserie"),
     "panel 105 'Peak': @grafana/schema declares no panel of type 'timeserie'"),
    (lambda dashboard, p: dashboard["templating"]["list"][1].update(label=7),
     "/templating/list/1/label must be string"),
    (lambda dashboard, p: dashboard.update(graphTooltips=1),
     " must NOT have additional properties: graphTooltips"),
)


def held_against_schema(*paths):
    return subprocess.run([DASHBOARDS / "check-schema", *paths], capture_output=True, text=True)


class Schema(unittest.TestCase):
    def test_ours_are_what_the_types_say(self):
        done = held_against_schema()
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)

    def test_mistakes_are_found_by_name(self):
        with tempfile.TemporaryDirectory() as folder:
            paths = [Path(folder) / f"{number}.json" for number in range(len(MISTAKES))]
            for path, (plant, _) in zip(paths, MISTAKES):
                dashboard = json.loads((DASHBOARDS / "grafana" / "headroom-process.json").read_text())
                named = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
                plant(dashboard, {panel["title"]: panel for panel in named})
                path.write_text(json.dumps(dashboard))
            done = held_against_schema(*paths)
            expected = "".join(f"{path.resolve()}: {said}\n" for path, (_, said) in zip(paths, MISTAKES))
        self.assertEqual(done.stdout, expected, done.stderr)
        self.assertEqual(done.returncode, 1)


if __name__ == "__main__":
    if (probe := held_against_schema()).returncode == 77:
        print(probe.stdout.strip())
        sys.exit(77)
    unittest.main()
