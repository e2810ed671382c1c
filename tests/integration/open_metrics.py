#!/usr/bin/env python3
"""Both formats of /metrics as strict readers see them: python3-prometheus-client's parsers, which agree on every sample.

HEADROOM_SERVED names the program that is scraped. Without that package: skipped, 77.
"""
import math
import os
import subprocess
import sys
import unittest
import urllib.request

from command_runner import PATIENCE, CommandTest

sys.path.append("/usr/lib/python3/dist-packages")  # Debian's package, where the Python that runs this is another one
try:
    from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open_metrics
    from prometheus_client.parser import text_string_to_metric_families as parse_text
except ImportError:
    print("skipped: python3-prometheus-client is not installed")
    sys.exit(77)

SERVED = os.environ.get("HEADROOM_SERVED", "served")
OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
CHANGES_BY_ITSELF = ("headroom_exporter_", "headroom_last_activity_", "headroom_device_free_bytes")


def samples_of(families):
    found = {}
    for family in families:
        for sample in family.samples:
            # Bounds are written differently, and are the same numbers.
            labels = frozenset((name, float(value) if name == "le" else value) for name, value in sample.labels.items())
            assert (sample.name, labels) not in found, sample
            found[sample.name, labels] = sample.value
    return found


class OpenMetrics(CommandTest):
    def setUp(self):
        super().setUp()
        self.process = subprocess.Popen([SERVED], env=self.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True)
        self.end_with_test(self.process)
        self.addCleanup(self.process.stdin.close)
        self.url = f"http://127.0.0.1:{int(self.process.stdout.readline())}/metrics"

    def scrape(self, accept):
        request = urllib.request.Request(self.url, headers={"Accept": accept})
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return answer.read().decode(), answer.headers["Content-Type"]

    def test_is_read_by_the_strict_parser_and_has_units_and_types(self):
        text, kind = self.scrape("application/openmetrics-text;version=1.0.0")
        self.assertEqual(kind, OPEN_METRICS)
        self.assertTrue(text.endswith("\n# EOF\n"))
        families = {family.name: family for family in parse_open_metrics(text)}
        self.assertEqual((families["headroom_frees"].type, families["headroom_frees"].unit), ("counter", ""))
        self.assertEqual((families["headroom_budget_bytes"].type, families["headroom_budget_bytes"].unit), ("gauge", "bytes"))
        self.assertEqual((families["headroom_allocation_duration_seconds"].type, families["headroom_allocation_duration_seconds"].unit),
                         ("histogram", "seconds"))
        self.assertEqual(families["headroom_build"].type, "info")
        self.assertEqual(families["headroom_oom_wait_seconds"].type, "counter")
        budgets = {sample.labels["manager"]: sample.value for sample in families["headroom_budget_bytes"].samples}
        self.assertEqual(budgets["model"], 1000 << 20)
        self.assertEqual(len(budgets), 2)  # the third has none

    def test_the_parser_is_strict(self):
        for broken in ("headroom_x 1\n", "# TYPE a counter\na 1\n# EOF\n", "# TYPE a gauge\na NaN\n",
                       "# TYPE a_x gauge\n# UNIT a_x bytes\na_x 1\n# EOF\n"):
            with self.assertRaises(ValueError, msg=broken):
                list(parse_open_metrics(broken))

    def test_both_formats_have_the_same_samples(self):
        self.process.stdin.flush()
        open_metrics = samples_of(parse_open_metrics(self.scrape(OPEN_METRICS)[0]))
        text, kind = self.scrape("text/plain")
        self.assertEqual(kind, "text/plain; version=0.0.4; charset=utf-8")
        plain = samples_of(parse_text(text))
        self.assertEqual(set(open_metrics), set(plain))
        self.assertGreater(len(plain), 200)
        for key, value in plain.items():
            if not key[0].startswith(CHANGES_BY_ITSELF):
                self.assertTrue(math.isclose(open_metrics[key], value, rel_tol=1e-14), key)


if __name__ == "__main__":
    unittest.main()
