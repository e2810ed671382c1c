#!/usr/bin/env python3
"""Rules and alerts of dashboards/prometheus: promtool's checks and tests of them, and what promtool does not look at.

Every alert fires in one test and is silent in another, every recording rule has its value in one; every metric that an expression names is
one that the exporter has; every alert has its runbook, whose commands there are. Each of these checks is shown a mistake that it must find.
HEADROOM_COMMAND and HEADROOM_SERVED name programs that are scraped. Without promtool or python3-yaml: skipped, 77.
"""
import copy
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

from command_runner import PATIENCE, CommandTest

sys.path.append("/usr/lib/python3/dist-packages")  # Debian's package, where the Python that runs this is another one
try:
    import yaml
except ImportError:
    print("skipped: python3-yaml is not installed")
    sys.exit(77)
if not shutil.which("promtool"):
    print("skipped: promtool is not installed (Debian: prometheus)")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXPORTER = ROOT / "exporter" / "src"
DASHBOARDS = ROOT / "dashboards"
PROMETHEUS = DASHBOARDS / "prometheus"
TESTS = sorted((PROMETHEUS / "tests").glob("*.yml"))
SERVED = os.environ.get("HEADROOM_SERVED", "served")

RECORDED = re.compile(r"[a-z_]+:headroom_[a-z0-9_]+:[a-z0-9_]+")
NAME = re.compile(r"(?<![\w:])(?:headroom_\w+|up)\b(?![:(])")
BY_PATTERN = re.compile(r'__name__=~"([^"]*)"')
LABEL_LIST = re.compile(r"\b(?:by|without|on|ignoring)\s*\(([^()]*)\)")
IN_TEXT = re.compile(r"\$labels\.(\w+)")
SUFFIXES = {"Gauge": ("",), "Counter": ("",), "Histogram": ("_bucket", "_sum", "_count")}
PARTS = ("What it means", "Look closer", "Usual causes", "What to do")
OF_TARGETS = {"job", "instance"}


def load(path):
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def rules_of(rules, kind):
    return [rule for group in rules["groups"] for rule in group["rules"] if kind in rule]


def families():
    """Name and type of each family, from the exporter's own table."""
    found = re.findall(r'\{Metric::\w+, "(\w+)", MetricType::(\w+)', (EXPORTER / "families.cpp").read_text(encoding="utf-8"))
    return {f"headroom_{name}": kind for name, kind in found}


def written_labels():
    """Labels that the exporter's code adds: some belong to GPUs, and there may be none where this runs."""
    lines = (line for path in EXPORTER.glob("*.cpp") for line in path.read_text(encoding="utf-8").splitlines())
    return {label for line in lines if "with_label(" in line for label in re.findall(r'"(\w+)", ', line)}


def series_of(known):
    return {name + suffix for name, kind in known.items() for suffix in SUFFIXES[kind]}


def spelled_out(pattern):
    """The names that a pattern of `|` and `(word)?` stands for."""
    names = pattern.split("|")
    while any("(" in name for name in names):
        names = [piece for name in names for piece in ([re.sub(r"\((\w+)\)\?", r"\1", name, count=1),
                                                         re.sub(r"\(\w+\)\?", "", name, count=1)] if "(" in name else [name])]
    return set(names)


def names_in(expression):
    """Metrics and recorded series that an expression asks for."""
    names = set()
    for pattern in BY_PATTERN.findall(expression):
        names |= spelled_out(pattern)
    bare = re.sub(r'"[^"]*"', '""', expression)
    recorded = set(RECORDED.findall(bare))
    return names | recorded | set(NAME.findall(RECORDED.sub(" ", bare)))


def headings(readme):
    """Heading of the third level under "## Alerts" → what stands below it."""
    section = re.search(r"^## Alerts\n(.*?)(?=^## |\Z)", readme, re.MULTILINE | re.DOTALL)
    pieces = re.split(r"^### (.*)\n", section.group(1) if section else "", flags=re.MULTILINE)
    return dict(zip(pieces[1::2], pieces[2::2]))


def test_findings(rules, tests):
    """What no test shows of these rules; `tests` are the documents of promtool's files."""
    groups = [group for document in tests for group in document["tests"]]
    fires, silent, asked = set(), set(), set()
    for group in groups:
        for case in group.get("alert_rule_test", ()):
            (fires if case.get("exp_alerts") else silent).add(case["alertname"])
        for case in group.get("promql_expr_test", ()):
            if case.get("exp_samples"):
                asked |= names_in(case["expr"])
    alerts = {rule["alert"] for rule in rules_of(rules, "alert")}
    recorded = {rule["record"] for rule in rules_of(rules, "record")}
    return ([f"{name}: fires in no test" for name in alerts - fires] + [f"{name}: is silent in no test" for name in alerts - silent] +
            [f"{name}: tested, but there is no such alert" for name in (fires | silent) - alerts] +
            [f"{name}: no test of its value" for name in recorded - asked])


def name_findings(rules, known):
    """Names that nothing makes, or that are not as they should be."""
    series = series_of(known) | {"up"}
    recorded = [rule["record"] for rule in rules_of(rules, "record")]
    found = [f"{name}: not level:metric:operation" for name in recorded if not RECORDED.fullmatch(name)]
    found += [f"{name}: recorded twice" for name in set(recorded) if recorded.count(name) > 1]
    for rule in rules_of(rules, "expr"):
        for name in names_in(rule["expr"]):
            if name not in series and name not in recorded:
                found.append(f"{rule.get('alert') or rule.get('record')}: {name}: nothing has that name")
    return found


def label_findings(rules, labels):
    found = []
    for rule in rules_of(rules, "expr"):
        named = {label.strip() for group in LABEL_LIST.findall(rule["expr"]) for label in group.split(",")}
        for text in rule.get("annotations", {}).values():
            named |= set(IN_TEXT.findall(text))
        found += [f"{rule.get('alert') or rule.get('record')}: {label}: nothing has that label" for label in named - labels]
    return found


def runbook_findings(rules, readme):
    sections, found = headings(readme), []
    for rule in rules_of(rules, "alert"):
        name, notes = rule["alert"], rule.get("annotations", {})
        found += [f"{name}: no {note}" for note in ("summary", "description", "runbook_url") if not notes.get(note)]
        if rule.get("labels", {}).get("severity") not in ("critical", "warning", "info"):
            found.append(f"{name}: severity is not critical, warning or info")
        if notes.get("runbook_url") != f"dashboards/README.md#{name.lower()}":
            found.append(f"{name}: runbook_url leads elsewhere")
        found += [f"{name}: no part '{part}' in the runbook" for part in PARTS if f"**{part}.**" not in sections.get(name, "")]
    alerts = {rule["alert"] for rule in rules_of(rules, "alert")}
    return found + [f"{name}: in the runbook, but there is no such alert" for name in sections if name not in alerts]


class Rules(CommandTest):
    maxDiff = None

    def setUp(self):
        super().setUp()
        self.rules = load(PROMETHEUS / "rules.yml")
        self.tests = [load(path) for path in TESTS]
        self.readme = (DASHBOARDS / "README.md").read_text(encoding="utf-8")

    def promtool(self, *arguments, folder=PROMETHEUS):
        return subprocess.run(["promtool", *map(str, arguments)], cwd=folder, capture_output=True, text=True)

    def alert(self, rules, name):
        return next(rule for rule in rules_of(rules, "alert") if rule["alert"] == name)

    @staticmethod
    def scrape_until(url, words):
        """ctest's limit ends what never comes."""
        while True:
            with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
                text = answer.read().decode()
            if words in text:
                return text
            time.sleep(0.05)

    def test_promtool_accepts_rules_and_configuration(self):
        for what, path in (("rules", "rules.yml"), ("config", "prometheus.yml")):
            done = self.promtool("check", what, path)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        count = len(rules_of(self.rules, "expr"))
        self.assertIn(f"SUCCESS: {count} rules found", self.promtool("check", "rules", "rules.yml").stdout)

    def test_every_case_holds(self):
        done = self.promtool("test", "rules", *TESTS)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        groups = [group for document in self.tests for group in document["tests"]]
        alerts = sum(len(group.get("alert_rule_test", ())) for group in groups)
        values = sum(len(group.get("promql_expr_test", ())) for group in groups)
        print(f"promtool: {alerts} cases of {len(rules_of(self.rules, 'alert'))} alerts, {values} of "
              f"{len(rules_of(self.rules, 'record'))} recording rules, in {len(groups)} histories: all hold")

    def test_cases_notice_rules_that_are_wrong(self):
        planted = (("budget.yml", "headroom_budget_use:ratio[2m]) >= 0.95", "headroom_budget_use:ratio[2m]) >= 0.94"),
                   ("failures.yml", "headroom_inflight_oldest_seconds[1m]) > 60", "headroom_inflight_oldest_seconds[1m]) > 58"),
                   ("failures.yml", "increase10m > 16", "increase10m > 6"),
                   ("hooks.yml", "expr: hook:headroom_hook_errors:increase10m", "expr: increase(headroom_hook_errors_total[10m])"),
                   ("scrapes.yml", "max_over_time(manager:headroom_budget_use:ratio[2m])", "manager:headroom_budget_use:ratio"),
                   ("scrapes.yml", "last_over_time(headroom_over_budget_bytes[1m])", "headroom_over_budget_bytes"),
                   ("scrapes.yml", "keep_firing_for: 5m", "keep_firing_for: 0s"),
                   ("scrapes.yml", "avg_over_time((headroom_pressure_level >= bool 3)[15m:30s]) > 0.8",
                    "min_over_time(headroom_pressure_level[15m]) >= 3"),
                   ("epochs.yml", "max_over_time(manager:headroom_claimed_bytes:max5m[2h:5m] offset 5m)",
                    "max_over_time(manager:headroom_claimed_bytes:max5m[10m:5m] offset 5m)"),
                   ("epochs.yml", "keep_firing_for: 15m", "keep_firing_for: 1m"),
                   ("scrapes.yml", "headroom_died_live_bytes and on (job, instance) (up offset 10m == 1)", "headroom_died_live_bytes"),
                   ("telemetry.yml", "last_over_time(headroom_node_files_skipped_total[6h] offset 1h)",
                    "headroom_node_files_skipped_total offset 1h"),
                   ("scrapes.yml", "(resets(headroom_exporter_scrape_duration_seconds_count[6m])) > 0",
                    "(headroom_exporter_scrape_duration_seconds_count - headroom_exporter_scrape_duration_seconds_count offset 5m) < 0"),
                   ("scrapes.yml", "last_over_time(headroom_node_folders[6m])", "headroom_node_folders"),
                   ("scrapes.yml", '"headroom_(exited_)?allocations_total"', '"headroom_allocations_total"'),
                   ("totals.yml", "(last_over_time(headroom_exporter_scrape_duration_seconds_count[6m])) > 1",
                    "(last_over_time(headroom_exporter_scrape_duration_seconds_count[6m])) > 2"),
                   ("telemetry.yml", 'up{job=~".*headroom-node.*"}', 'up{job=~".*headroom.*"}'),
                   ("use.yml", "(headroom_budget_bytes > 0), 0, 1)", "headroom_budget_bytes, 0, 1)"),
                   ("totals.yml", "or 0 * headroom_exited_allocations_total", ""),
                   ("totals.yml", "unless on (job, instance) instance:headroom_node_restarted:bool5m", ""))
        for test, right, wrong in planted:
            with self.subTest(right), tempfile.TemporaryDirectory(dir=self.folder) as name:
                copied = pathlib.Path(name) / "prometheus"
                shutil.copytree(PROMETHEUS, copied)
                text = (copied / "rules.yml").read_text(encoding="utf-8")
                self.assertIn(right, text)
                (copied / "rules.yml").write_text(text.replace(right, wrong), encoding="utf-8")
                self.assertEqual(self.promtool("check", "rules", "rules.yml", folder=copied).returncode, 0)
                done = self.promtool("test", "rules", f"tests/{test}", folder=copied)
                self.assertIn("FAILED", done.stdout + done.stderr)
                self.assertNotEqual(done.returncode, 0)

    def test_every_rule_is_shown_by_a_case(self):
        self.assertEqual(test_findings(self.rules, self.tests), [])

    def test_a_rule_that_no_case_shows_is_found(self):
        tests = copy.deepcopy(self.tests)
        for group in (group for document in tests for group in document["tests"]):
            for case in group.get("alert_rule_test", ()):
                if case["alertname"] == "HeadroomHookStuck":
                    case.pop("exp_alerts", None)
            group["alert_rule_test"] = [case for case in group.get("alert_rule_test", ())
                                        if case["alertname"] != "HeadroomOverBudget" or case.get("exp_alerts")]
            group["promql_expr_test"] = [case for case in group.get("promql_expr_test", ())
                                         if "program:headroom_processes:sum" not in case["expr"]]
        tests[0]["tests"][0]["alert_rule_test"].append({"eval_time": "1m", "alertname": "HeadroomNearBugdet"})
        self.assertCountEqual(test_findings(self.rules, tests), [
            "HeadroomHookStuck: fires in no test", "HeadroomOverBudget: is silent in no test",
            "HeadroomNearBugdet: tested, but there is no such alert", "program:headroom_processes:sum: no test of its value"])

    def test_every_name_is_one_that_something_has(self):
        self.assertGreater(len(families()), 70)
        self.assertEqual(name_findings(self.rules, families()), [])

    def test_a_name_that_nothing_has_is_found(self):
        rules = copy.deepcopy(self.rules)
        self.alert(rules, "HeadroomOverBudget")["expr"] = "headroom_over_bugdet_bytes > 0"
        self.alert(rules, "HeadroomDeviceNearBudget")["expr"] = "device:headroom_budget_uses:ratio >= 0.95"
        self.alert(rules, "HeadroomOperationStuck")["expr"] = 'sum({__name__=~"headroom_(existed_)?frees_total"}) > 60'
        self.alert(rules, "HeadroomHookErrors")["expr"] = "headroom_hook_duration_seconds > 1"  # a histogram: only with a suffix
        rules["groups"][0]["rules"][0]["record"] = "headroom_budget_use_ratio"
        found = name_findings(rules, families())
        self.assertLessEqual({"HeadroomOverBudget: headroom_over_bugdet_bytes: nothing has that name",
                              "HeadroomDeviceNearBudget: device:headroom_budget_uses:ratio: nothing has that name",
                              "HeadroomOperationStuck: headroom_existed_frees_total: nothing has that name",
                              "HeadroomHookErrors: headroom_hook_duration_seconds: nothing has that name",
                              "headroom_budget_use_ratio: not level:metric:operation",
                              "HeadroomNearBudget: manager:headroom_budget_use:ratio: nothing has that name"}, set(found))

    def test_names_and_labels_are_those_of_a_real_scrape(self):
        exporter = self.start_command("export", "--listen", "127.0.0.1:0")
        node = self.wait_for(exporter, "serving ").split("serving ")[1].split(" on ")[0]
        served = subprocess.Popen([SERVED], env=self.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, text=True)
        self.end_with_test(served)
        self.addCleanup(served.stdin.close)
        own = f"http://127.0.0.1:{int(served.stdout.readline())}/metrics"
        text = self.scrape_until(node, "headroom_hook_runs_total{") + self.scrape_until(own, "headroom_hook_runs_total{")
        served.kill()
        text += self.scrape_until(node, "headroom_died_live_bytes{")
        known = families()
        types = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE))
        self.assertEqual({name: known.get(name, "in no table").lower() for name in types}, types)
        samples = set(re.findall(r"^(headroom_\w+)", text, re.MULTILINE))
        labels = set(re.findall(r'[{,](\w+)="', text)) | written_labels() | OF_TARGETS
        self.assertEqual(label_findings(self.rules, labels), [])
        planted = copy.deepcopy(self.rules)
        self.alert(planted, "HeadroomHookStuck")["annotations"]["summary"] = "{{ $labels.hok }}"
        self.alert(planted, "HeadroomExporterSilent")["expr"] += " and on (job, instanec) up"
        self.assertEqual(label_findings(planted, labels), ["HeadroomHookStuck: hok: nothing has that label",
                                                           "HeadroomExporterSilent: instanec: nothing has that label"])
        wanted = set().union(*(names_in(rule["expr"]) for rule in rules_of(self.rules, "expr")))
        wanted = {name for name in wanted if name.startswith("headroom_")}
        print(f"real scrape: {len(types)} families, {len(samples & wanted)} of the {len(wanted)} that rules ask for; "
              f"not made by these programs: {', '.join(sorted(wanted - samples)) or 'none'}")
        self.assertGreater(len(samples & wanted), len(wanted) * 3 / 4)

    def test_every_alert_has_its_runbook(self):
        self.assertEqual(runbook_findings(self.rules, self.readme), [])

    def test_an_alert_without_its_runbook_is_found(self):
        rules = copy.deepcopy(self.rules)
        del self.alert(rules, "HeadroomOverBudget")["annotations"]["summary"]
        self.alert(rules, "HeadroomHookStuck")["annotations"]["runbook_url"] = "dashboards/README.md#headroomhookerrors"
        self.alert(rules, "HeadroomHookErrors")["labels"]["severity"] = "page"
        readme = self.readme.replace("### HeadroomNearBudget\n", "### HeadroomNearBugdet\n")
        part = f"**{PARTS[3]}.**"
        at = readme.index(part, readme.index("### HeadroomOperationStuck\n"))
        readme = readme[:at] + readme[at + len(part):]
        self.assertCountEqual(runbook_findings(rules, readme), [
            "HeadroomOverBudget: no summary", "HeadroomHookStuck: runbook_url leads elsewhere",
            "HeadroomHookErrors: severity is not critical, warning or info", "HeadroomOperationStuck: no part 'What to do' in the runbook",
            *(f"HeadroomNearBudget: no part '{part}' in the runbook" for part in PARTS),
            "HeadroomNearBugdet: in the runbook, but there is no such alert"])

    def test_commands_of_the_runbook_are_there(self):
        asked = set(re.findall(r"`headroom\s+([a-z]+)((?:\s[^`]*)?)`", self.readme))
        self.assertGreater(len(asked), 5)
        for command, rest in sorted(asked):
            usage = self.run_command(command, "--help")
            self.assertEqual(usage.returncode, 0, f"headroom {command}: {usage.stderr}")
            for option in re.findall(r"--[a-z-]+", rest):
                self.assertIn(option, usage.stdout, f"headroom {command}{rest}")

    def test_series_that_the_page_names_are_recorded(self):
        named = set(re.findall(r"(?<=`)" + RECORDED.pattern + r"(?=`)", self.readme))
        self.assertGreater(len(named), 10)
        self.assertLessEqual(named, {rule["record"] for rule in rules_of(self.rules, "record")})

    def test_the_kubernetes_resource_is_made_of_these_rules(self):
        make = DASHBOARDS / "kubernetes" / "make_rules.py"
        done = subprocess.run([sys.executable, make, "--check"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        resource = load(DASHBOARDS / "kubernetes" / "rules.yml")
        self.assertEqual(resource["spec"], self.rules)
        linked = subprocess.run([sys.executable, make, "--runbooks", "https://git.example/main/"], capture_output=True, text=True)
        expected = copy.deepcopy(self.rules)
        for rule in rules_of(expected, "alert"):
            rule["annotations"]["runbook_url"] = "https://git.example/main/" + rule["annotations"]["runbook_url"]
        self.assertEqual(yaml.safe_load(linked.stdout)["spec"], expected)

    def test_the_kubernetes_resource_takes_labels(self):
        make = DASHBOARDS / "kubernetes" / "make_rules.py"
        done = subprocess.run([sys.executable, make, "--label", "release=monitoring", "--label", "example.org/tier=1"],
                              capture_output=True, text=True)
        labelled, resource = yaml.safe_load(done.stdout), load(DASHBOARDS / "kubernetes" / "rules.yml")
        self.assertEqual(labelled["metadata"].pop("labels"), {"app.kubernetes.io/part-of": "headroom", "release": "monitoring",
                                                              "example.org/tier": "1"})
        resource["metadata"].pop("labels")
        self.assertEqual(labelled, resource)
        for wrong in ("release", "=x", "release=a b", "a/b/c=d", "release=x\n"):
            refused = subprocess.run([sys.executable, make, "--label", wrong], capture_output=True, text=True)
            self.assertEqual((refused.returncode, refused.stdout), (2, ""), wrong)
            self.assertIn("not KEY=VALUE", refused.stderr)
        self.assertEqual(load(DASHBOARDS / "kubernetes" / "rules.yml")["spec"], self.rules)

    def test_what_is_shipped_scrapes_the_node_exporter_alone(self):
        config = load(PROMETHEUS / "prometheus.yml")
        shipped = {}
        for job in config["scrape_configs"]:
            files = [path for each in job["file_sd_configs"] for pattern in each["files"] for path in PROMETHEUS.glob(pattern)]
            shipped[job["job_name"]] = [target for path in files for group in load(path) or () for target in group["targets"]]
        self.assertEqual(shipped, {"headroom": [], "headroom-node": ["127.0.0.1:9479"]})
        by_hand = (PROMETHEUS / "targets" / "programs.yml").read_text(encoding="utf-8").replace("\n#-", "\n-")
        self.assertEqual(yaml.safe_load(by_hand), [{"targets": ["127.0.0.1:9478"]}])
        self.assertEqual((config["global"]["scrape_interval"], config["global"]["scrape_timeout"]), ("15s", "10s"))

    def test_the_query_of_namespaces_is_one_that_a_case_shows(self):
        query = " ".join(re.search(r"^label_replace\(.*?^```$", self.readme, re.MULTILINE | re.DOTALL).group(0).removesuffix("```").split())
        asked = [" ".join(case["expr"].split()) for document in self.tests for group in document["tests"]
                 for case in group.get("promql_expr_test", ()) if case.get("exp_samples")]
        self.assertIn(query, asked)

    def test_a_resource_that_is_out_of_date_is_found(self):
        copied = self.folder / "dashboards"
        shutil.copytree(DASHBOARDS, copied)
        with open(copied / "prometheus" / "rules.yml", "a", encoding="utf-8") as rules:
            rules.write("# one line more\n")
        done = subprocess.run([sys.executable, copied / "kubernetes" / "make_rules.py", "--check"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("run make_rules.py", done.stderr)


if __name__ == "__main__":
    unittest.main()
