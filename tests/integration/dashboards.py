"""The dashboards ask for what the exporters serve, and each mistake that the check is for is found by name.

The metrics come from real processes: living ones, one that was killed, some that ended, one on a GPU, behind two node exporters and one
exporter in a process. Without promtool: skipped, 77.
"""
import copy
import json
import os
import shutil
import subprocess
import sys
import time
import unittest
import urllib.request
from pathlib import Path

from command_runner import DATA, PATIENCE, CommandTest

if not shutil.which("promtool"):
    print("skipped: promtool is not installed")
    sys.exit(77)

DASHBOARDS = Path(__file__).resolve().parents[2] / "dashboards"
SERVED = os.environ.get("HEADROOM_SERVED", "served")
ON_A_GPU = os.environ.get("HEADROOM_ON_A_GPU", "on_a_gpu")
EXAMPLES = [path for path in os.environ.get("HEADROOM_EXAMPLES", "").split(":") if path]
DRIVER = Path(os.environ.get("HEADROOM_FAKE_DRIVER", "."))
UUID = "GPU-00000000-1111-2222-3333-444444444444"  # the made-up driver's first
sys.path.insert(0, str(DASHBOARDS / "checks"))
import inventory  # noqa: E402
import promql  # noqa: E402
import queries  # noqa: E402
import structure  # noqa: E402

# What only ended processes leave, and only if they had something to leave.
OF_THE_ENDED = ("exited_allocation_failures_total{", "exited_deallocation_failures_total{", "exited_oom_recoveries_total{",
                "exited_pressure_transitions_total{")


def get(url):
    with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
        return answer.read().decode()


class Scene(CommandTest):
    """Processes of all kinds, and what /metrics says of them."""

    def environment(self, **more):
        return {**super().environment(), "LD_LIBRARY_PATH": str(DRIVER / "whole"), **more}

    def export(self, keep_dead):
        process = self.start_command("export", "--listen", "127.0.0.1:0", "--keep-dead", keep_dead)
        return self.wait_for(process, "serving ").split("serving ")[1].split(" on ")[0]

    def until(self, url, words, meanwhile=lambda: None):
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            meanwhile()
            text = get(url)
            if all(word in text for word in words):
                return text
            time.sleep(0.05)
        self.fail(f"never all of {words} in:\n{text}")

    def run_examples(self):
        for example in EXAMPLES:
            subprocess.run([example], env=self.environment(HEADROOM_QUIET="1"), stdout=subprocess.DEVNULL, timeout=PATIENCE)

    def scrapes(self):
        remembers, forgets = self.export("1h"), self.export("1s")
        served = subprocess.Popen([SERVED], env=self.environment(CUDA_VISIBLE_DEVICES="0"), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, text=True)
        self.end_with_test(served)
        self.addCleanup(served.stdin.close)
        in_process = self.until(f"http://127.0.0.1:{int(served.stdout.readline())}/metrics", ["headroom_device_usable_bytes{"])
        self.start_program(ON_A_GPU, UUID, says="ready")
        killed = self.start_command("replay", DATA / "oom_batch.csv.xz", "--stop-after", "500", "--hold", "1h")
        self.wait_for(killed, "holding")
        self.until(remembers, [f'process="{name}"' for name in ("on_a_gpu", "served", "headroom")])
        self.kill(killed)
        whole = self.until(remembers, ["headroom_died_live_bytes{"])
        # A machine without time for the exporter may miss an example, which is gone in no time: it is run again then.
        ended = self.until(forgets, OF_THE_ENDED, meanwhile=self.run_examples)
        return [in_process, whole, ended]


class Dashboards(Scene):
    @classmethod
    def setUpClass(cls):
        scene = Scene("scrapes")
        scene.setUp()
        try:
            cls.metrics = inventory.read(scene.scrapes())
        finally:
            scene.doCleanups()
        cls.maxDiff = None
        cls.all = {path.stem: json.loads(path.read_text()) for path in sorted((DASHBOARDS / "grafana").glob("*.json"))}

    def findings(self, dashboard, stem="headroom-process"):
        return [*structure.check(dashboard, stem, set(self.all)), *queries.check(dashboard, self.metrics)]

    def test_they_ask_for_what_is_served(self):
        self.assertEqual(set(self.all), {"headroom-fleet", "headroom-process"})
        for stem, dashboard in self.all.items():
            self.assertEqual(self.findings(dashboard, stem), [], stem)

    def test_they_are_what_the_script_makes(self):
        done = subprocess.run([sys.executable, DASHBOARDS / "generate", "--check"], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def test_a_metric_that_is_not_served_is_told_from_one_that_is(self):
        self.assertEqual(self.metrics["headroom_allocation_size_bytes_bucket"].type, "histogram")
        self.assertEqual(self.metrics["headroom_hook_skips_total"].labels,
                         {"job", "instance", "process", "pid", "run", "host", "device", "manager", "hook", "reason"})
        self.assertEqual(self.metrics["headroom_exited_allocation_failures_total"].labels,
                         {"job", "instance", "process", "reason", "layer"})
        self.assertEqual(self.metrics["headroom_device_budget_bytes"].labels,
                         {"job", "instance", "process", "pid", "run", "host", "device", "uuid"})
        self.assertEqual(self.metrics["headroom_device_usable_bytes"].labels,  # a node exporter's have no run
                         {"job", "instance", "process", "pid", "run", "device", "uuid"})
        self.assertNotIn("headroom_allocated_bytes_total", self.metrics)

    def planted(self, change):
        """Findings of a dashboard with one mistake: `change` gets it, its panels by title and its variables by name."""
        dashboard = copy.deepcopy(self.all["headroom-process"])
        panels = {panel["title"]: panel for panel in dashboard["panels"]}
        variables = {variable["name"]: variable for variable in dashboard["templating"]["list"]}
        change(dashboard, panels, variables)
        return self.findings(dashboard)

    def assert_found(self, expected, change):
        found = self.planted(change)
        self.assertTrue(found and all(finding.startswith(expected) for finding in found[:1]) and len(found) == 1,
                        f"expected one finding that begins with\n  {expected}\nfound\n  " + "\n  ".join(found))

    def assert_expr_found(self, expected, expr, legend=""):
        def change(dashboard, panels, variables):
            panels["Peak"]["targets"][0].update(expr=expr, legendFormat=legend)
        self.assert_found(f"panel 105 'Peak': target A: {expected}", change)

    def test_mistakes_in_a_panel(self):
        def set_in(panel, **values):
            return lambda dashboard, panels, variables: panels[panel].update(values)
        self.assert_found("panel 105 'Peak': type 'timeserie', expected one of", set_in("Peak", type="timeserie"))
        self.assert_found("panel 105 'Peak': no description", set_in("Peak", description=""))
        self.assert_found("panel 105 'Peak': no target", set_in("Peak", targets=[]))
        self.assert_found("panel 105 'Peak': datasource {'type': 'prometheus', 'uid': 'abc'}, expected the variable",
                          set_in("Peak", datasource={"type": "prometheus", "uid": "abc"}))
        self.assert_found("id 104: of 2 panels", set_in("Peak", id=104))
        self.assert_found("panel 105 'Peak': unit 'byte', expected one of",
                          lambda d, panels, v: panels["Peak"]["fieldConfig"]["defaults"].update(unit="byte"))
        self.assert_found("panel 105 'Peak': target A: expr is 5, expected a string",
                          lambda d, panels, v: panels["Peak"]["targets"][0].update(expr=5))

    def test_mistakes_in_the_layout(self):
        def moved(**values):
            return lambda dashboard, panels, variables: panels["Lanes and folded tags"]["gridPos"].update(values)
        found = self.planted(moved(x=8))
        self.assertIn("panel 703 'Lanes and folded tags': overlaps panel 702 'Events refused or lost'", found)
        self.assertTrue(any(finding.startswith("a gap in the layout at column 16") for finding in found), found)
        self.assert_found("a gap in the layout at column 23", moved(w=7))
        found = self.planted(moved(x=17))
        self.assertTrue(found[0].startswith("panel 703 'Lanes and folded tags': at {'x': 17"), found)

    def test_mistakes_in_expressions(self):
        self.assert_expr_found("metric 'headroom_peek_bytes' is not served", "sum(headroom_peek_bytes)")
        self.assert_expr_found("metric 'headroom_exitd_frees_total' is not served",
                               'sum({__name__=~"headroom_frees_total|headroom_exitd_frees_total"})')
        self.assert_expr_found("label 'jop' is on no series of headroom_peak_bytes", 'sum(headroom_peak_bytes{jop="$job"})')
        self.assert_expr_found("by: label 'tag' is on none of its series", "sum by (tag) (headroom_peak_bytes)")
        self.assert_expr_found("on: label 'hook' is on none of its series",
                               "headroom_peak_bytes and on (hook) headroom_budget_bytes")
        self.assert_expr_found("legend: label 'instance' is grouped away", "sum by (run) (headroom_peak_bytes)", "{{instance}}")
        self.assert_expr_found("legend: label 'tag' is on none of its series", "headroom_peak_bytes", "{{tag}}")
        self.assert_expr_found("rate() of 'headroom_peak_bytes', which is a gauge", "sum(rate(headroom_peak_bytes[5m]))")
        self.assert_expr_found("deriv() of 'headroom_frees_total', which is a counter", "sum(deriv(headroom_frees_total[5m]))")
        self.assert_expr_found('run="$run": several values may be chosen, expected =~', 'sum(headroom_peak_bytes{run="$run"})')
        self.assert_expr_found("by (run) stands behind what it groups", "sum(headroom_peak_bytes) by (run)")
        self.assert_expr_found("could not parse expression: ", "sum(headroom_peak_bytes")
        self.assert_expr_found("could not parse expression: ", "rate(headroom_frees_total)")

    def test_mistakes_in_variables_and_links(self):
        def device_asks(query):
            return lambda dashboard, panels, variables: variables["device"].update(query=query)
        self.assert_found("variable 'device': is not chained to $process", device_asks(
            'label_values(headroom_allocated_bytes{job="$job",instance=~"$instance"}, device)'))
        self.assert_found("variable 'device': by: label 'gpu' is on none of its series", device_asks(
            'label_values(headroom_allocated_bytes{job="$job",instance=~"$instance",process="$process"}, gpu)'))
        self.assert_found("variable 'device': asks with $manager, which does not stand before it", device_asks(
            'label_values(headroom_allocated_bytes{job="$job",instance=~"$instance",process="$process",manager=~"$manager"}, device)'))
        self.assert_found("variable 'uuid': no description", lambda d, p, variables: variables["uuid"].update(description=""))
        self.assert_found("$batch: no such variable",
                          lambda d, panels, v: panels["Peak"]["targets"][0].update(expr='headroom_peak_bytes{run=~"$batch"}'))
        self.assert_found("link to /d/headroom-flet: no dashboard 'headroom-flet'",
                          lambda dashboard, p, v: dashboard["links"][0].update(url="/d/headroom-flet"))

    def test_mistakes_in_the_dashboard(self):
        self.assert_found("uid 'other', expected the file's name", lambda dashboard, p, v: dashboard.update(uid="other"))
        self.assert_found("schemaVersion 36, expected 39 or later", lambda dashboard, p, v: dashboard.update(schemaVersion=36))
        self.assert_found("__inputs: ", lambda dashboard, p, v: dashboard.update(__inputs=[]))

    def test_reads_what_an_expression_asks_for(self):
        read = promql.read('sum by (a) (rate(x_total{b="}) by (c", d=~"$e"}[$__rate_interval])) and on (a) topk(3, y) > 1e3 offset 5m')
        self.assertEqual([(s.metrics, s.matchers, s.function) for s in read.selectors],
                         [(["x_total"], [("b", "=", "}) by (c"), ("d", "=~", "$e")], "rate"), (["y"], [], "")])
        self.assertEqual([(g.word, g.labels, len(g.selectors)) for g in read.groupings], [("by", ["a"], 1), ("on", ["a"], 2)])

    def assert_samples(self, expected, panel, series, letter="A", dashboard="headroom-fleet", at="20m"):
        """Of a panel after 20 minutes, by promtool, over series of a point a minute. `expected`: a value by labels, {} for none."""
        expr = next(target["expr"] for p in self.all[dashboard]["panels"] if p["title"] == panel
                    for target in p["targets"] if target["refId"] == letter)
        for variable, value in (("$__interval", "1m"), ("$__range", "20m"), ('"$job"', '"j"')):
            expr = expr.replace(variable, value)
        test = {"interval": "1m", "input_series": [{"series": name, "values": values} for name, values in series.items()],
                "promql_expr_test": [{"expr": structure.VARIABLE.sub(".*", expr).replace('process=".*"', 'process=~".*"'), "eval_time": at,
                                      "exp_samples": [{"labels": labels, "value": value} for labels, value in expected.items()]}]}
        path = self.write("test.yml", json.dumps({"tests": [test]}))
        done = subprocess.run(["promtool", "test", "rules", path], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def assert_value(self, expected, panel, series):
        self.assert_samples({"{}": expected}, panel, series)

    def test_what_ended_counts_once_and_what_began_anew_does_not_count(self):
        of = 'job="j",instance="a",process="{}",reason="over_budget",layer="manager"'.format
        run = 'pid="1",run="{}",manager="m"'.format
        failures = "headroom_allocation_failures_total"
        series = {
            'up{job="j",instance="a"}': "1x20",
            # A job of a moment: seen once it has failed three times, then part of the sums; these begin anew with the exporter in the
            # twelfth minute, and another such job fails four times.
            f'{failures}{{{of("short")},{run("1")}}}': "_x2 3 3 3 stale",
            f'headroom_exited_{failures[9:]}{{{of("short")}}}': "_x5 3x5 stale",
            f'{failures}{{{of("short")},{run("2")}}}': "_x13 4x6",
            # It was there when the first scrape came, with five failures: two more are seen.
            f'{failures}{{{of("long")},{run("3")}}}': "5x8 7x11",
            # Its sum falls from ten to two with the restart of the exporter, and then one more fails.
            f'headroom_exited_{failures[9:]}{{{of("gone")}}}': "10x11 2 2 3x6",
        }
        self.assert_value(3 + 4 + 2 + 1, "Failed requests", series)
        with self.assertRaises(AssertionError):
            self.assert_value(11, "Failed requests", series)

    def test_a_program_that_serves_itself_counts_from_its_beginning(self):
        of = 'job="j",instance="{}",process="p",pid="1",run="{}"'.format
        failed = 'headroom_allocation_failures_total{{{},manager="m",reason="over_budget",layer="manager"}}'.format
        start = "headroom_process_start_time_seconds{{{}}}".format
        series = {
            # A new pod, first scraped in the tenth minute, ten seconds after it began and failed three times; then once more.
            'up{job="j",instance="new"}': "_x10 1x9",
            start(of("new", "1")): "_x10 590x9",
            failed(of("new", "1")): "_x10 3x4 4x4",
            # One that ran for a long time when Prometheus first saw it: its five are of an earlier day.
            'up{job="j",instance="old"}': "_x10 1x9",
            start(of("old", "2")): "_x10 -90000x9",
            failed(of("old", "2")): "_x10 5x9",
            # A container that begins anew at the same address, between two scrapes: six failures, then two of the next one.
            'up{job="j",instance="loop"}': "1x20",
            start(of("loop", "3")): "-300x10 stale",
            failed(of("loop", "3")): "0 6x9 stale",
            start(of("loop", "4")): "_x11 650x8",
            failed(of("loop", "4")): "_x11 2x8",
            # A node exporter begins anew: what lives there failed before.
            'up{job="j",instance="node"}': "_x10 1x9",
            'headroom_node_folders{job="j",instance="node",state="watched"}': "_x10 1x9",
            start(of("node", "5")): "_x10 590x9",
            failed(of("node", "5")): "_x10 7x9",
        }
        self.assert_value(4 + 0 + (6 + 2) + 0, "Failed requests", series)
        with self.assertRaises(AssertionError):
            self.assert_value(13, "Failed requests", series)

    def test_zero_is_not_said_where_nobody_knows(self):
        down, up = {'up{job="j",instance="a"}': "0x20"}, {'up{job="j",instance="a"}': "1x20"}
        for panel in ("Living processes", "High pressure", "Allocated", "Failed requests", "Failed frees", "Killed", "Live when it died"):
            self.assert_samples({"{}": 0}, panel, up)
            self.assert_samples({}, panel, down)
        for panel in ("State", "Failed requests", "Bytes in failed frees"):
            self.assert_samples({"{}": 0}, panel, up, dashboard="headroom-process")
            self.assert_samples({}, panel, down, dashboard="headroom-process")
        self.assert_samples({"{}": 0}, "Exporters down", up)
        self.assert_samples({"{}": 1}, "Exporters down", down)
        self.assert_samples({}, "Exporters down", {})

    def test_a_budget_of_some_managers_is_none_of_all(self):
        of = 'job="j",instance="a",process="p",pid="{0}",run="{0}",manager="{1}"'.format
        budget, claimed = "headroom_budget_bytes{{{}}}".format, "headroom_claimed_bytes{{{}}}".format
        both = {budget(of(1, "m")): "10x20", claimed(of(1, "m")): "4x20", budget(of(1, "n")): "20x20", claimed(of(1, "n")): "5x20"}
        some = {budget(of(2, "m")): "10x20", claimed(of(2, "m")): "4x20", claimed(of(2, "n")): "50x20"}
        none = {claimed(of(3, "m")): "4x20"}
        row = '{{instance="a", process="p", pid="{0}", run="{0}"}}'.format
        self.assert_samples({row(1): 30, row(2): -1}, "Processes", {**both, **some, **none}, letter="C")
        line = {"panel": "Budget against use, by tag", "letter": "C", "dashboard": "headroom-process"}
        self.assert_samples({"{}": 30}, series=both, **line)
        self.assert_samples({}, series=some, **line)
        self.assert_samples({}, series=none, **line)

    def test_gpus_are_rows_of_their_own(self):
        def of(instance, run, uuid, more=""):
            return f'{{job="j",instance="{instance}",process="p",pid="{run}",run="{run}",device="0",uuid="{uuid}"{more}}}'
        nvml = '{{job="j",instance="node",process="headroom",pid="9",device="3",uuid="{}"}}'.format
        series = {
            'headroom_node_folders{job="j",instance="node",state="watched"}': "1x20",
            # The driver is asked: 80 of which 79 are usable and 40 free; two processes have 30 of the 39 that are used.
            **{f"headroom_device_{name}_bytes{nvml('A')}": f"{value}x20" for name, value in (("total", 80), ("usable", 79), ("free", 40))},
            f'headroom_allocated_bytes{of("node", 1, "A")}': "20x20",
            f'headroom_allocated_bytes{of("node", 2, "A")}': "10x20",
            # A GPU there that no process of ours uses.
            **{f"headroom_device_{name}_bytes{nvml('B')}": f"{value}x20" for name, value in (("total", 80), ("usable", 79), ("free", 70))},
            # Two programs that serve themselves, without NVML, saw the third at different times.
            **{f"headroom_device_{name}_bytes{of(instance, instance, 'C')}": f"{value}x20" for instance, free, others in
               (("3", 50, 4), ("4", 45, 6)) for name, value in (("total", 80), ("free", free), ("used_outside", others))},
            f'headroom_allocated_bytes{of("3", 3, "C")}': "12x20",
            f'headroom_allocated_bytes{of("4", 4, "C")}': "13x20",
        }
        of_uuid = '{{uuid="{}"}}'.format
        at_node = '{{instance="node", uuid="{}"}}'.format
        self.assert_samples({at_node("A"): 80, at_node("B"): 80, of_uuid("C"): 80}, "GPUs", series, letter="A")
        self.assert_samples({of_uuid("A"): 30, of_uuid("C"): 25}, "GPUs", series, letter="B")
        self.assert_samples({of_uuid("A"): 9, of_uuid("B"): 9, of_uuid("C"): 6}, "GPUs", series, letter="C")
        self.assert_samples({of_uuid("A"): 40, of_uuid("B"): 70}, "GPUs", series, letter="D")
        self.assert_samples({of_uuid("C"): 45}, "GPUs", series, letter="E")
        self.assert_samples({of_uuid("A"): 2, of_uuid("C"): 2}, "GPUs", series, letter="F")
        device = {"panel": "Device memory", "dashboard": "headroom-process", "series": series}
        self.assert_samples({of_uuid("A"): 40, of_uuid("C"): 45}, letter="C", **device)
        self.assert_samples({of_uuid("A"): 9, '{device="0", uuid="C"}': 6}, letter="D", **device)

    def test_the_command(self):
        scrape = self.write("scrape", "# TYPE headroom_peak_bytes gauge\nheadroom_peak_bytes{run=\"1\"} 1\n")
        broken = copy.deepcopy(self.all["headroom-process"])
        broken["panels"][1]["type"] = "singlestat"
        path = self.write("headroom-process.json", json.dumps(broken))
        done = subprocess.run([sys.executable, DASHBOARDS / "check", "--scrape", scrape, "--", path], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (1, ""))
        self.assertIn("headroom-process.json: panel 101 'State': type 'singlestat', expected one of ", done.stdout)
        self.assertIn("metric 'headroom_claimed_bytes' is not served", done.stdout)


if __name__ == "__main__":
    unittest.main()
