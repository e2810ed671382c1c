#!/usr/bin/env python3
"""/api/state.json against its published schema, and its figures against what the program did and what /metrics says of it.

HEADROOM_SERVED names the program that is asked (served/main.cpp). The schema is checked by python3-jsonschema.
"""
import json
import os
import re
import subprocess
import unittest
from pathlib import Path

import jsonschema

from command_runner import CommandTest
from state_client import StateClient

SERVED = os.environ.get("HEADROOM_SERVED", "served")
SCHEMA = Path(__file__).resolve().parents[2] / "exporter/schema/state.schema.json"
README = Path(__file__).resolve().parents[2] / "exporter/README.md"
DETAILS = {"devices", "managers", "hooks", "threads", "last_failures", "losses"}
MIB = 1 << 20


class State(StateClient, CommandTest):
    @classmethod
    def setUpClass(cls):
        cls.schema = json.loads(SCHEMA.read_text())
        jsonschema.Draft202012Validator.check_schema(cls.schema)
        cls.validator = jsonschema.Draft202012Validator(cls.schema)

    def start_served(self, *arguments):
        process = subprocess.Popen([SERVED, *arguments], env=self.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL, text=True)
        self.end_with_test(process)
        self.addCleanup(process.stdin.close)
        self.url = f"http://127.0.0.1:{int(process.stdout.readline())}/"
        return process

    def test_of_a_program_without_a_manager(self):
        process = self.start_served("none")
        (one,) = self.state()["processes"]
        self.assertEqual((one["pid"], one["managers"], one["budget_bytes"], one["allocated_bytes"]), (process.pid, [], None, 0))

    def test_of_a_program_that_worked(self):
        self.start_served()
        (one,) = self.state(good=lambda s: len(s["processes"][0]["last_failures"]) == 3)["processes"]
        self.assertEqual([m["name"] for m in one["managers"][:2]], ["model", "staging"])
        model = one["managers"][0]
        self.assertEqual({tag["name"]: (tag["bytes"], tag["at_peak_bytes"]) for tag in model["tags"]["list"]},
                         {"weights": (600 * MIB, 600 * MIB), "kv-cache": (300 * MIB, 200 * MIB), "cache": (0, 150 * MIB)})
        (hook,) = one["hooks"]
        self.assertEqual((hook["name"], hook["manager"], hook["runs"], hook["freed_bytes"], hook["reported_bytes"]),
                         ("evict cache", "model", 2, 150 * MIB, 150 * MIB))
        (device,) = one["devices"]
        self.assertEqual((device["total_bytes"], device["seen_by"]), (64 << 30, "program"))
        gave_up = one["last_failures"][1]
        self.assertEqual((gave_up["done"], gave_up["outcome"]), (["hook 'evict cache' ran and freed nothing"], "failed for good"))

    def test_figures_are_those_of_the_metrics(self):
        self.start_served()
        state, metrics = self.state()["processes"][0], self.fetch("metrics")
        for manager in state["managers"][:2]:
            for key, metric in (("allocated_bytes", "allocated_bytes"), ("claimed_bytes", "claimed_bytes"), ("peak_bytes", "peak_bytes"),
                                ("live_allocations", "live_allocations"), ("allocations", "allocations_total"), ("frees", "frees_total")):
                found = re.findall(f"^headroom_{metric}{{[^\\n]*manager=\"{manager['name']}\"[^\\n]*}} ([0-9]+)$", metrics, re.M)
                self.assertEqual(found, [str(manager[key])], metric)

    def test_a_history_has_every_second_and_the_failures_in_it(self):
        process = self.start_served("none")
        self.state()  # whoever answers has read the books once: what comes now is new to it
        process.stdin.write("\n")
        process.stdin.flush()
        self.assertEqual(process.stdout.readline(), "made\n")

        def histories(state):
            managers = state["processes"][0]["managers"]
            return managers[0]["history"] if managers and managers[0]["history"] else {"low_bytes": []}

        seconds = len(histories(self.state(good=lambda s: histories(s)["low_bytes"]))["low_bytes"])
        state = self.state(good=lambda s: len(histories(s)["low_bytes"]) >= seconds + 2)
        history = histories(state)
        arrays = [history[key] for key in ("low_bytes", "high_bytes", "budget_bytes", "failures")]
        self.assertEqual(len({len(array) for array in arrays}), 1)
        self.assertLessEqual(history["first_second"] + len(arrays[0]), state["now_second"] + 1)
        self.assertEqual(max(filter(None, history["high_bytes"])), 950 * MIB)  # for a moment, between two readings
        self.assertEqual(history["low_bytes"][-1], 900 * MIB)
        self.assertEqual(sum(filter(None, history["failures"])), state["processes"][0]["managers"][0]["failures"])
        later = histories(self.state(f"?since={history['first_second'] + 2}"))
        self.assertGreaterEqual(later["first_second"], history["first_second"] + 2)

    def test_details_are_of_those_that_are_asked_for(self):
        self.start_served()
        identity = self.state()["processes"][0]["id"]
        for query, wanted in (("", True), ("?detail=", False), ("?detail=auto", True), ("?detail=1-00000000", False),
                              (f"?detail=1-00000000,{identity}", True), ("?since=rubbish&x=y", True)):
            one = self.state(query)["processes"][0]
            self.assertEqual(DETAILS & set(one), DETAILS if wanted else set(), query)

    def test_every_key_is_described(self):
        text = README.read_text().split("## /api/state.json")[1]

        def keys(node):
            if isinstance(node, dict):
                for key, value in node.items():
                    if key == "properties":
                        yield from value
                    yield from keys(value)
            elif isinstance(node, list):
                for value in node:
                    yield from keys(value)

        missing = {key for key in keys(self.schema) if f"`{key}`" not in text} - {"version", "name"}
        self.assertEqual(missing, set())


if __name__ == "__main__":
    unittest.main()
