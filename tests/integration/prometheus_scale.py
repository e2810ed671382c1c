#!/usr/bin/env python3
"""The figures of dashboards/scale.md, and the configurations beside it, tried with the real exporter and the real Prometheus, in small.

Skipped (77) without `prometheus`.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from collections import Counter
from pathlib import Path

from export_runner import ExportTest, found, parse, total
from command_runner import DATA, PATIENCE

DASHBOARDS = Path(__file__).resolve().parents[2] / "dashboards"
SCALE = DASHBOARDS / "scale"
CONFIGURATIONS = DASHBOARDS / "prometheus" / "scale"
sys.path.insert(0, str(SCALE))
import series
from local_prometheus import Prometheus, installed
from node_text import node_text, scrape
from synthetic_targets import Targets

COMMAND, SERVED, MANY_MANAGERS = (os.environ.get(name, name.lower()) for name in ("HEADROOM_COMMAND", "HEADROOM_SERVED", "HEADROOM_MANY_MANAGERS"))
OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def samples_in(text):
    return [line for line in text.splitlines() if line and line[0] != "#"]


def labels_of(samples, name, label):
    return [labels[label] for labels in found(samples, name)]


class Arithmetic(ExportTest):
    """series.py says how many series there are; here they are counted."""

    def node_series(self, exporter):
        """(samples, what the formulas say)."""
        samples = self.scrape(exporter)
        limited = len(found(samples, "budget_bytes"))
        managers, tags = len(found(samples, "allocated_bytes")), len(found(samples, "tag_allocated_bytes"))
        hooks = len(found(samples, "hook_runs_total"))
        living = len(found(samples, "process_start_time_seconds"))
        unusual = sum(total(samples, "allocation_failures_total") > 0 and reason not in self.usual(layer)
                      for reason, layer in self.failures(samples))
        expected = (living * series.PROCESS + managers * series.MANAGER + limited * series.BUDGET + tags * series.TAG +
                    hooks * series.HOOK + self.device_figures(samples) + series.NODE + series.NAME + unusual)
        return samples, expected

    def failures(self, samples):
        return [(labels["reason"], labels["layer"]) for labels in found(samples, "allocation_failures_total")]

    @staticmethod
    def usual(layer):
        """What is there with 0 from the start, by layer."""
        return {"manager": ["over_budget"], "device_account": ["over_budget"], "guard": ["over_budget"],
                "driver": ["device_out_of_memory", "driver"], "request": ["overflow", "invalid_argument"],
                "resource": ["device_out_of_memory", "overflow", "invalid_argument", "stream_misuse", "unsupported"],
                "runtime": ["no_runtime", "stream_misuse"]}[layer]

    @staticmethod
    def device_figures(samples):
        return sum(len(found(samples, f"device_{name}_bytes")) for name in ("total", "free", "used_outside", "budget", "claimed")) + len(
            found(samples, "device_account_pending_free_bytes"))

    def test_of_a_node_with_one_process_that_has_a_budget_hooks_and_tags(self):
        exporter = self.export()
        process = self.start_command("replay", DATA / "resnet.csv.xz", "--budget", "2900MiB", "--hook", "cache:128MiB:1", "--hook",
                                     "spill:256MiB:2", "--policy", "retry", "--stop-after", "4000", "--hold", "1h")
        self.wait_for(process, "holding")
        self.scrape_until(exporter, lambda samples: total(samples, "node_processes", state="living") == 1)
        samples, expected = self.node_series(exporter)
        tags = len(found(samples, "tag_allocated_bytes"))
        self.assertGreater(tags, 2)
        self.assertEqual(len(samples), expected)
        # The same in one formula, as scale.md has it, whose model node has one manager on one device for each process.
        self.assertEqual(len(samples), series.Node(processes=1, tags=tags, hooks=2).series() - series.TARGET)
        self.assertEqual(series.DEVICE, self.device_figures(samples))

    def test_of_a_node_with_a_process_without_a_budget(self):
        exporter = self.export()
        process = self.start_command("replay", DATA / "oom_batch.csv.xz", "--stop-after", "500", "--hold", "1h", "--tag", "none")
        self.wait_for(process, "holding")
        self.scrape_until(exporter, lambda samples: total(samples, "node_processes", state="living") == 1)
        samples, expected = self.node_series(exporter)
        self.assertEqual(found(samples, "budget_bytes"), [])
        self.assertEqual(len(samples), expected)

    def test_of_a_node_with_several_managers_and_devices(self):
        exporter = self.export()
        self.start_program(MANY_MANAGERS, says="ready")
        self.scrape_until(exporter, lambda samples: total(samples, "node_processes", state="living") == 1)
        samples, expected = self.node_series(exporter)
        self.assertEqual(sorted(labels_of(samples, "allocated_bytes", "manager")), ["cache", r"spill \"2\"", "weights"])
        self.assertEqual(len(samples), expected)

    def test_of_a_process_that_died(self):
        exporter = self.export("--keep-dead", "1h", "--dump-dir", "off")
        process = self.start_command("replay", DATA / "resnet.csv.xz", "--budget", "2900MiB", "--hook", "cache:128MiB:1", "--stop-after",
                                     "4000", "--hold", "1h")
        self.wait_for(process, "holding")
        living = self.scrape_until(exporter, lambda samples: total(samples, "node_processes", state="living") == 1)
        tags = len(found(living, "tag_allocated_bytes"))
        self.kill(process)
        samples = self.scrape_until(exporter, lambda samples: total(samples, "processes_died_total", state="killed") == 1)
        kept = len(samples) - series.NODE - series.NAME
        self.assertLessEqual(kept, series.KEPT_PROCESS + series.kept_manager(tags=tags, hooks=1))
        # It is less by counters that are 0 still: those are not kept.
        zeros = sum(name.endswith("_total") and value == 0 for name, labels, value in living if "run" in labels)
        self.assertEqual(kept, series.KEPT_PROCESS + series.kept_manager(tags=tags, hooks=1) - zeros)

    def test_of_a_process_that_serves_itself(self):
        process = subprocess.Popen([SERVED], env=self.environment(HEADROOM_DUMP="off"), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL, text=True)
        self.end_with_test(process)
        self.addCleanup(process.stdin.close)
        text, _ = scrape(f"http://127.0.0.1:{int(process.stdout.readline())}/metrics")
        samples = parse(text)
        gpus = sum(len(found(samples, f"device_{name}_bytes")) for name in ("driver_reserved", "usable"))  # where there are some
        managers = 2 * series.manager(limited=True) + series.manager(limited=False)
        self.assertEqual(len(samples), series.PROCESS + series.OWN_EXPORTER + managers + series.HOOK +
                         series.TAG * len(found(samples, "tag_allocated_bytes")) + self.device_figures(samples) + gpus)

    def test_buckets_are_as_many_as_said(self):
        exporter = self.export()
        process = self.start_command("replay", DATA / "oom_batch.csv.xz", "--hook", "h:1MiB:1", "--stop-after", "500", "--hold", "1h")
        self.wait_for(process, "holding")
        samples = self.scrape_until(exporter, lambda samples: total(samples, "node_processes", state="living") == 1)
        for name, buckets in {**series.HISTOGRAM_BUCKETS, "hook_duration_seconds": series.HOOK_BUCKETS}.items():
            self.assertEqual(len(found(samples, f"{name}_bucket")), buckets, name)


class Document(unittest.TestCase):
    def test_tables_are_those_that_series_py_prints(self):
        text = (DASHBOARDS / "scale.md").read_text()
        for table in (series.node_table(), series.fleet_table()):
            self.assertIn(table, text)

    def test_figures_of_the_formulas(self):
        text = (DASHBOARDS / "scale.md").read_text()
        for name in ("MANAGER", "BUDGET", "TAG", "HOOK", "PROCESS", "DEVICE", "DEVICE_ACCOUNT", "NODE", "NAME", "OWN_EXPORTER", "TARGET",
                     "KEPT_PROCESS", "KEPT_MANAGER", "KEPT_TAG", "KEPT_HOOK"):
            self.assertRegex(text, rf"(?m)^\| `{name}` \| {getattr(series, name)} \|", name)

    def test_what_fewer_series_drops_whole_is_asked_for_by_nobody(self):
        dropped = re.search(r"regex: headroom_\((\w+(?:\|\w+)*)\)\n\s+action: drop\n\Z", (CONFIGURATIONS / "fewer-series.yml").read_text())[1].split("|")
        self.assertEqual(dropped, ["pressure_transitions_total", "remaining_bytes"])
        for path in (DASHBOARDS / "prometheus" / "rules.yml", *(DASHBOARDS / "grafana").glob("*.json")):
            for name in dropped:
                self.assertNotIn(f"headroom_{name}", path.read_text(), path)

    def test_configurations_are_valid(self):
        for path in sorted(CONFIGURATIONS.glob("*.yml")):
            agent = ["--agent"] if path.stem == "agent" else []
            done = subprocess.run(["promtool", "check", "config", *agent, path], capture_output=True, text=True, timeout=PATIENCE)
            self.assertEqual(done.returncode, 0, f"{path.name}: {done.stdout}{done.stderr}")


class Configurations(unittest.TestCase):
    """Each with made-up nodes, scraped every two seconds."""
    NODES = 10

    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory(prefix="headroom-scale-")
        cls.addClassCleanup(cls.temporary.cleanup)
        cls.folder = Path(cls.temporary.name)
        cls.text, cls.content_type = node_text(COMMAND, cls.folder, 1)
        cls.targets = Targets(cls.text, cls.content_type, cls.NODES, cls.folder)
        cls.addClassCleanup(cls.targets.stop)
        (cls.folder / "nodes.yml").write_text(json.dumps([{"targets": cls.targets.addresses}]))

    def start(self, name, *arguments, replace=(), **options):
        """`replace`: pairs of what stands in the file and what should, beside nodes, rules and a shorter time."""
        text = re.sub(r"(scrape_interval|scrape_timeout|evaluation_interval): \d+s", r"\1: 2s", (CONFIGURATIONS / f"{name}.yml").read_text())
        for old, new in replace:
            self.assertIn(old, text)
            text = text.replace(old, new)
        text = text.replace("../targets/nodes*.yml", f"{self.folder}/nodes.yml").replace("../rules.yml", f"{DASHBOARDS}/prometheus/rules.yml")
        return self.serve(text, *arguments, **options)

    def serve(self, configuration, *arguments, **options):
        server = Prometheus(tempfile.mkdtemp(dir=self.folder), configuration, *arguments, **options)
        self.addCleanup(server.stop)
        return server

    def eventually(self, look, expected):
        deadline = time.monotonic() + PATIENCE
        while (seen := look()) != expected:
            if time.monotonic() > deadline:
                self.assertEqual(seen, expected)
            time.sleep(0.2)

    def test_content_type_is_open_metrics(self):
        self.assertEqual(self.content_type, OPEN_METRICS)

    def test_fewer_series_leaves_whole_histograms(self):
        server = self.start("fewer-series")
        kept = len(samples_in(self.text)) - series.KEPT["fewer-series.yml"](series.BUCKETS + 2 * series.HOOK_BUCKETS)
        self.eventually(lambda: [node["value"][1] for node in server.query('count by (instance) ({__name__=~"headroom_[a-z_]+"})')],
                        self.NODES * [str(kept)])
        of_each = Counter(series_["metric"]["__name__"] for series_ in server.query(
            f'{{__name__=~"headroom_.*_bucket",instance="{self.targets.addresses[0]}"}}'))
        self.assertEqual({name: count for name, count in of_each.items() if "scrape" not in name}, {
            "headroom_allocation_size_bytes_bucket": 12, "headroom_allocation_duration_seconds_bucket": 10,
            "headroom_budget_use_ratio_bucket": 16, "headroom_hook_duration_seconds_bucket": 2 * 10})
        # Nobody is left with the label that decides, and the largest bucket still is the count.
        self.assertEqual(server.query('{__tmp_bucket!=""}'), [])
        self.assertEqual(server.query("headroom_allocation_size_bytes_count != ignoring (le) headroom_allocation_size_bytes_bucket{le=\"+Inf\"}"), [])
        self.assertEqual(server.value("count(histogram_quantile(0.9, headroom_allocation_size_bytes_bucket) > 0)"), self.NODES)

    def test_relabelling_that_the_document_shows(self):
        """Each block of scale.md, by what is left."""
        blocks = re.findall(r"```yaml\nmetric_relabel_configs:\n(.*?)```", (DASHBOARDS / "scale.md").read_text(), re.S)
        whole = len(samples_in(self.text))
        left = (series.NODE + series.NAME, whole - series.KEPT["no buckets"](series.BUCKETS + 2 * series.HOOK_BUCKETS))
        self.assertEqual(len(blocks), len(left))
        for block, expected in zip(blocks, left):
            server = self.serve("global: {scrape_interval: 2s, scrape_timeout: 2s}\nscrape_configs:\n  - job_name: headroom-node\n"
                                f'    file_sd_configs: [{{files: ["{self.folder}/nodes.yml"]}}]\n    metric_relabel_configs:\n' +
                                "".join(f"    {line}\n" for line in block.splitlines()))
            self.eventually(lambda: [node["value"][1] for node in server.query('count by (instance) ({__name__=~"headroom_[a-z_]+"})')],
                            self.NODES * [str(expected)])

    def test_shards_share_the_nodes_and_the_fleet_is_their_sum(self):
        shards = [self.start("shard", replace=(("regex: '0'", f"regex: '{number}'"), ("shard: '0'", f"shard: '{number}'"))) for number in range(2)]
        addresses = []
        for shard in shards:
            self.eventually(lambda: bool(shard.get("targets", state="active")["activeTargets"]), True)
            addresses.append({target["labels"]["instance"] for target in shard.get("targets", state="active")["activeTargets"]})
        self.assertEqual(addresses[0] & addresses[1], set())
        self.assertEqual(addresses[0] | addresses[1], set(self.targets.addresses))
        fleet = self.start("global", replace=(("'127.0.0.1:9090', '127.0.0.1:9091'", ", ".join(f"'{shard.address}'" for shard in shards)),))
        self.eventually(lambda: fleet.value("sum(sum without (shard) (job:headroom_processes:sum))"), self.NODES)
        self.assertEqual({part["metric"]["shard"] for part in fleet.query("job:headroom_processes:sum")}, {"0", "1"})
        self.assertEqual(fleet.query("headroom_allocated_bytes"), [], "single processes stay in the shards")
        self.assertEqual([server.complaints() for server in (*shards, fleet)], [[], [], []])

    def test_an_agent_writes_to_a_store(self):
        store = self.serve("", "--web.enable-remote-write-receiver")
        agent = self.start("agent", agent=True, replace=(("http://127.0.0.1:9090", store.url),))
        self.eventually(lambda: store.value('count(headroom_process_up{cluster="one"})'), self.NODES)
        self.assertEqual(store.query('{__name__=~"headroom_.*_bucket"}'), [])
        self.assertGreater(len(store.query("headroom_allocation_size_bytes_count")), 0)
        self.assertIsNone(agent.process.poll())


class Measured(unittest.TestCase):
    def test_a_measurement_in_small(self):
        with tempfile.TemporaryDirectory(prefix="headroom-scale-") as folder:
            figures = Path(folder) / "figures.json"
            done = subprocess.run([sys.executable, SCALE / "measure", "--targets", "10", "--minutes", "0.1", "--interval", "2", "--json", figures,
                                   "--headroom", COMMAND], capture_output=True, text=True, timeout=PATIENCE)
            self.assertIn(done.returncode, (0, 1), done.stderr)  # 1: a scrape failed on a machine without time, and it says so
            found_figures = json.loads(figures.read_text())
        self.assertGreaterEqual(found_figures["series"], 10 * (found_figures["samples_of_a_target"] + series.TARGET))
        self.assertGreater(found_figures["samples_per_second"], 0)
        self.assertGreater(found_figures["resident_bytes"], found_figures["heap_bytes"])
        recorded = {rule["name"]: rule for rule in found_figures["rules"]}
        self.assertEqual(recorded["process:headroom_allocated_bytes:sum"]["raw_series"], 10)
        self.assertIn("headroom-fleet", {panel["where"].split(" / ")[0] for panel in found_figures["panels"]})
        for line in ("| series in the head |", "| recorded as | raw |", "| dashboard | queries |"):
            self.assertIn(line, done.stdout)


if __name__ == "__main__":
    if not installed() or not shutil.which("promtool"):
        print("skipped: prometheus is not installed")
        sys.exit(77)
    unittest.main()
