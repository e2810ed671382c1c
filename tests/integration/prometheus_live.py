#!/usr/bin/env python3
"""Every expression of every dashboard, variable and rule, asked of a real Prometheus that scrapes real exporters.

The scene: a `headroom replay` that runs out of its budget again and again and serves itself; a node exporter over four processes, of which
one is killed with bytes live, one ends, and one is in all the trouble that there is (in_trouble); a second node exporter that finds broken
files and cannot write post-mortems; an exporter that does not answer; a Prometheus where an exporter should be; and what dcgm-exporter
says of the GPU that in_trouble has.

Rules wait for minutes, and this test does not: a copy of the shipped rules is loaded in which a minute is a second (hurried()). The shipped
ones are loaded too, by a second Prometheus, and their expressions are asked as they are: none may be refused.

Skipped (77) without `prometheus`.
"""
import http.server
import itertools
import os
import re
import socket
import subprocess
import sys
import threading
import time
import unittest
from pathlib import Path

from export_runner import ExportTest, found, total
from command_runner import DATA, PATIENCE

DASHBOARDS = Path(__file__).resolve().parents[2] / "dashboards"
sys.path.insert(0, str(DASHBOARDS / "scale"))
import expressions
from local_prometheus import Prometheus, QueryError, installed

IN_TROUBLE = os.environ.get("HEADROOM_IN_TROUBLE", "in_trouble")
DRIVER = Path(os.environ.get("HEADROOM_FAKE_DRIVER", "."))
RULES = DASHBOARDS / "prometheus" / "rules.yml"
DCGM = ('# TYPE DCGM_FI_DEV_GPU_TEMP gauge\nDCGM_FI_DEV_GPU_TEMP{gpu="3",UUID="GPU-0badf00d-1111-2222-3333-444444444444",'
        'device="nvidia3"} 61\n')
# Grafana's own variables. Scrapes are a second apart.
GRAFANA = {"__interval": "1s", "__rate_interval": "5s", "__range": "60s", "__range_s": "60", "__interval_ms": "1000"}
JOB = ("--budget", "2900MiB", "--hook", "cache:128MiB:1", "--hook", "spill:256MiB:2:4MiB", "--policy", "retry")

# What never has data in this scene, by where it is asked, and why. Whoever finds data there, or does not find the question any more,
# says so: this list cannot rot.
NEVER = {
    "headroom-fleet / Events refused or lost / A": "no event is refused",
    "headroom-fleet / Processes without series of their own / A": "nobody was dead before an exporter began",
    "headroom-fleet / Processes without series of their own / B": "it takes hundreds of processes that ended",
    "headroom-fleet / Processes without series of their own / C": "it takes a thousand processes",
    "headroom-process / Claimed beyond what is allocated / A": "the process that is looked at reserves nothing",
    "headroom-process / Claimed beyond what is allocated / B": "its guard has no emergency reserve",
    "headroom-process / Events refused or lost / A": "no event is refused",
    "headroom-process / Lanes and folded tags / B": "it has few tags",
    "headroom-process / Live allocations / B": "every allocation finds its slot",
    "headroom-process / Waiting for room / B": "its policy does not wait",
    "record process:headroom_events_refused:increase10m": "no event is refused",
    "record instance:headroom_node_restarted:bool5m": "no exporter begins anew",
    "alert HeadroomEventsRefused": "no event is refused",
    "alert HeadroomIdleHoldsMemory": "nothing is idle for 6 hours",
    "alert HeadroomProcessesFolded": "it takes hundreds of processes",
    "alert HeadroomProcessesKilled": "it takes more than 16 that are killed",
    "alert HeadroomProgramDown": "no program that serves itself ends",
}
# What may have data or not, as the machine's load has it.
EITHER = {
    "headroom-process / Device memory / B": "what is usable is known where there is an NVIDIA driver",
    "headroom-process / Device memory / E": "what the driver reserves is known where there is an NVIDIA driver",
    "headroom-fleet / Events refused or lost / B": "a reader without time loses events",
    "headroom-fleet / Errors of exporters / A": "no exporter errs, unless reading the GPUs takes it too long",
    "alert HeadroomExporterErrors": "no exporter errs, unless reading the GPUs takes it too long",
    "alert HeadroomExporterAbsent": "there are exporters, from the first scrape on",
}


def hurried(rules):
    """The rules in a world in which a minute is a second: ranges, offsets, waits, and the seconds that expressions name."""
    def seconds(match):
        return f"{match[1]}{int(match[2]) * (60 if match[3] == 'h' else 1)}s"
    rules = re.sub(r"(\[|\boffset |\bfor: |_for: |:)(\d+)([mh])\b", seconds, rules).replace(":30s]", ":1s]")
    for pattern, quick in ((r"predict_linear\((\w+\[\w+\]), 900\)", r"predict_linear(\1, 15)"), (r"time\(\) - 600\b", "time() - 10"),
                           (r"(_seconds\[\w+\]\)) > 60\b", r"\1 > 1")):
        rules, count = re.subn(pattern, quick, rules)
        assert count, f"no rule has {pattern} any more"
    return rules


class PrometheusLive(ExportTest):
    def node(self, name):
        """What is started from here on is on this node."""
        self.flights, self.dumps = self.folder / name, self.folder / f"{name}-dumps"
        self.flights.mkdir(mode=0o700, exist_ok=True)

    def replay(self, name, *arguments, says):
        process = self.start_command("replay", DATA / f"{name}.csv.xz", *arguments)
        process.line = self.wait_for(process, says)
        return process

    def in_trouble(self):
        process = subprocess.Popen([IN_TROUBLE], env=self.environment(HEADROOM_DUMP="off", HEADROOM_QUIET="1"), stdout=subprocess.PIPE,
                                   stdin=subprocess.DEVNULL, text=True)
        self.end_with_test(process)
        self.assertEqual(process.stdout.readline(), "in trouble\n")

    def broken(self, run):
        (self.folder / "node-2" / f"broken.1.{run}.flight").write_bytes(b"x" * 5000)

    def silent_address(self):
        """An address that nobody listens at, and that nobody else can take meanwhile."""
        taken = socket.socket()
        self.addCleanup(taken.close)
        taken.bind(("127.0.0.1", 0))
        return "127.0.0.1:%d" % taken.getsockname()[1]

    def dcgm_address(self):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.end_headers()
                self.wfile.write(DCGM.encode())

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.handle_error = lambda *_: None  # Prometheus ends in the middle of a scrape, perhaps
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return f"127.0.0.1:{server.server_port}"

    def start_scene(self):
        self.node("alone")
        os.environ["LD_LIBRARY_PATH"], before = str(DRIVER / "whole"), os.environ.get("LD_LIBRARY_PATH")
        try:
            self.serves_itself = self.replay("resnet", *JOB, "--loop", "forever", "--stretch", "4s", "--listen", "127.0.0.1:0",
                                             "--bind", "fail", says="http://")
        finally:
            os.environ.pop("LD_LIBRARY_PATH")
            if before is not None:
                os.environ["LD_LIBRARY_PATH"] = before
        self.node("node-1")
        self.first = self.export("--keep-dead", "1h")
        self.held_one = self.replay("oom_batch", "--stop-after", "500", "--hold", "1h", says="holding")
        self.replay("resnet", *JOB, "--stop-after", "4000", "--hold", "1h", says="holding")
        self.doomed = self.replay("resnet", "--stop-after", "4000", "--hold", "1h", says="holding")
        self.in_trouble()
        self.node("node-2")
        open_to_all = self.folder / "open-to-all"
        self.broken("0123456789abcdef")
        self.second = self.export("--dir", self.flights, "--dir", open_to_all, "--dump-dir", self.write("no-folder", ""),
                                  "--keep-dead", "1h")
        open_to_all.mkdir()  # one that is there is refused at the start, and nothing is served
        open_to_all.chmod(0o777)
        self.doomed_there = self.replay("gpt2", "--stop-after", "1000", "--hold", "1h", says="holding")
        self.scrape_until(self.first, lambda samples: total(samples, "node_processes", state="living") == 4)
        self.scrape_until(self.second, lambda samples: total(samples, "node_processes", state="living") == 1)

    def start_prometheus(self):
        rules = self.write("hurried.yml", hurried(RULES.read_text()))
        alone = re.search(r"http://([\d.:]+)", self.serves_itself.line)[1]
        nodes = [exporter.url.removeprefix("http://") for exporter in (self.first, self.second)]
        misplaced = self.folder / "misplaced.json"
        self.good = {alone, *nodes}
        self.server = Prometheus(self.folder / "prometheus", f"""
global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}
rule_files: ["{rules}"]
scrape_configs:
  - job_name: headroom-process
    static_configs: [{{targets: ["{alone}"]}}]
  - job_name: headroom-node
    static_configs: [{{targets: ["{nodes[0]}", "{nodes[1]}", "{self.silent_address()}"]}}]
  - job_name: dcgm
    static_configs: [{{targets: ["{self.dcgm_address()}"]}}]
  - job_name: headroom-misplaced
    file_sd_configs: [{{files: ["{misplaced}"]}}]
""")
        self.addCleanup(self.server.stop)
        # At once, since it is read as soon as there is something.
        self.write("misplaced", f'[{{"targets": ["{self.server.address}"]}}]').rename(misplaced)
        self.shipped = Prometheus(self.folder / "prometheus-of-shipped-rules", f'rule_files: ["{RULES}"]\n')
        self.addCleanup(self.shipped.stop)
        self.began = time.time()
        self.eventually(lambda: self.up() >= self.good, lambda: f"up: {self.up()}")

    def up(self):
        return {sample["metric"]["instance"] for sample in self.server.query("up == 1")}

    def eventually(self, holds, what):
        deadline = time.monotonic() + PATIENCE
        while not holds():
            if time.monotonic() > deadline:
                self.fail(what() + f"\n{self.server.complaints()}")
            time.sleep(0.2)

    def has_data(self, asked, since):
        """At any moment from then on: on a machine that has no time a scrape fails now and then, and what is asked for is not there for a
        second. What Prometheus refuses is an error of the test."""
        try:
            if asked.kind == "label_values":
                return bool(self.server.label_values(asked.label, asked.expression))
            return bool(self.server.query_range(asked.expression, since, max(time.time(), since), 1))
        except QueryError as error:
            self.fail(f"{asked.where}: {error}\n{asked.expression}")

    def dashboards_ask(self):
        asked = []
        for path in expressions.dashboard_files():
            dashboard = expressions.Dashboard(path)
            choices = dashboard.choices(GRAFANA, lambda question: self.server.label_values(question.label, question.expression), asked)
            for choice in choices:
                for question in dashboard.questions(choice):
                    asked.append(question)
                    # `or vector(0)` has data always; what stands before it should have some too.
                    bare = re.sub(r"\s+or vector\(0\)\s*$", "", question.expression)
                    if bare != question.expression:
                        asked.append(expressions.Asked(question.where, question.kind, bare, raw=question.raw))
        return asked

    def test_every_expression_has_an_answer_and_every_alert_fires(self):
        self.assertEqual(len(expressions.dashboard_files()), 2)
        self.start_scene()
        self.start_prometheus()
        self.check_scrapes()

        self.kill(self.doomed)
        self.kill(self.doomed_there)
        self.end(self.held_one)
        rules = self.server.rules()
        alerts = {rule["name"] for rule in rules if rule["type"] == "alerting"}
        expected = {name for name in alerts if f"alert {name}" not in {**NEVER, **EITHER}}
        answered, last, deadline = set(), self.began, time.monotonic() + PATIENCE
        for turn in itertools.count(1):
            now = time.time()
            self.broken(f"{turn:016x}")  # what happens once, for a second, may happen while a scrape fails
            asked = self.dashboards_ask() + expressions.of_rules(rules)  # the values that can be chosen may have become more
            for question in asked:
                if self.place(question) not in answered and self.has_data(question, last):
                    answered.add(self.place(question))
            last = now - 5  # evaluated a little later than it was scraped
            places = {self.place(question) for question in asked}
            pending = {place for place in places - answered if place[0] not in NEVER and place[0] not in EITHER}
            fired = self.fired()
            if (not pending and fired >= expected) or time.monotonic() > deadline:
                break
            time.sleep(0.2)
        self.assertFalse(pending, "no data, and no reason in NEVER:\n" + "\n".join(sorted(f"{where}: {raw}" for where, raw, _ in pending)))
        self.assertFalse(expected - fired, "never fired")
        self.check_nevers(asked, fired)
        refused = self.ask_shipped_rules()
        self.check_scrapes()
        self.assertEqual({(rule["name"], rule["health"], rule.get("lastError", "")) for rule in self.server.rules() if rule["health"] != "ok"}, set())
        self.assertEqual(self.server.complaints(), [])
        self.tell(asked, places, answered, alerts, fired, refused)

    @staticmethod
    def place(question):
        """Values that were chosen make no difference: where some of them have data, that will do."""
        return question.where, question.raw, question.expression.endswith("vector(0)")

    def fired(self):
        """What the alerts API calls firing now, and what was, as Prometheus wrote it down."""
        now = {alert["labels"]["alertname"] for alert in self.server.get("alerts")["alerts"] if alert["state"] == "firing"}
        series = self.server.get("series", **{"match[]": 'ALERTS{alertstate="firing"}', "start": self.began})
        return now | {labels["alertname"] for labels in series}

    def check_nevers(self, asked, fired):
        for where, reason in {**NEVER, **EITHER}.items():
            of_place = [question for question in asked if question.where == where]
            self.assertTrue(of_place, f"'{where}' is asked no more: it should leave the list")
            if where in NEVER:
                for question in of_place:
                    self.assertFalse(self.has_data(question, self.began), f"'{where}' has data, although {reason}: it should leave the list")
                self.assertNotIn(where.removeprefix("alert "), fired)

    def ask_shipped_rules(self):
        """As they are, without the hurry: nothing but errors would be wrong. Returns how many were asked."""
        shipped = expressions.of_rules(self.shipped.rules())
        self.assertEqual([question.where for question in shipped], [question.where for question in expressions.of_rules(self.server.rules())])
        for question in shipped:
            self.has_data(question, time.time())
        self.assertEqual(self.shipped.complaints(), [])
        return len(shipped)

    def check_scrapes(self):
        """From here on: everything that is served gets there, read as OpenMetrics, which Prometheus asks for."""
        well, since = set(), time.time()

        def all_are_well():
            for target in self.server.get("targets", state="active")["activeTargets"]:
                if target["health"] == "up" and target["lastError"] == "":
                    well.add(target["labels"]["instance"])
            return well >= self.good

        self.eventually(all_are_well, lambda: f"well are only {well}")
        # One of two equal series would be dropped in silence. At one moment, since series come and go.
        alike = 'count by (instance) ({__name__=~"headroom_\\\\w+"}) == on (instance) scrape_samples_scraped'
        self.eventually(lambda: {series["metric"]["instance"] for series in
                                 self.server.query_range(alike, since, time.time() + 1, 1)} >= self.good,
                        lambda: str(self.server.query("scrape_samples_scraped")))
        metadata = self.server.get("metadata", metric="headroom_budget_bytes")["headroom_budget_bytes"]
        self.assertEqual({(entry["type"], entry["unit"]) for entry in metadata}, {("gauge", "bytes")})  # only OpenMetrics tells units

    def tell(self, asked, places, answered, alerts, fired, shipped):
        questions = {(question.kind, question.label, question.expression) for question in asked}
        print(f"\n{len(questions)} expressions of {len(places)} places in dashboards, variables and rules were asked, and {shipped} of the rules "
              f"without hurry: none was refused\n{len(places & answered)} places with data, {len(places - answered)} empty:")
        for where, reason in {**NEVER, **EITHER}.items():
            if not any(place[0] == where for place in answered):
                print(f"  {where}: {reason}")
        print(f"{len(fired)} of {len(alerts)} alerts fired: {', '.join(sorted(fired))}")
        print(f"in {time.time() - self.began:.0f} s of scraping, {self.server.value('sum(scrape_samples_scraped)') or 0:.0f} samples a second")


if __name__ == "__main__":
    if not installed():
        print("skipped: prometheus is not installed")
        sys.exit(77)
    unittest.main()
