#!/usr/bin/env python3
"""The page of a whole machine in a real Chromium: `headroom export` over replays of which some live, one was killed and one has exited.

HEADROOM_COMMAND names the command. Without a Chromium: skipped, 77. HEADROOM_SCREENSHOTS names a folder for pictures of what was tested.
"""
import json
import os
import subprocess
import sys
import time
import unittest
import urllib.error
from pathlib import Path

import jsonschema

from browser import PATIENCE, WORST_CONTRAST, Browser, find_chromium
from command_runner import COMMAND, DATA, HEADER, CommandTest
from state_client import StateClient

SCHEMA = Path(__file__).resolve().parents[2] / "exporter/schema/state.schema.json"
ROWS = "document.querySelectorAll('.process')"
LIVE = "document.querySelector('#freshness').textContent === 'live'"


class MachineTest(StateClient, CommandTest):
    def start_export(self, *arguments):
        exporter = self.start_command("export", "--listen", "127.0.0.1:0", *arguments)
        self.url = self.wait_for(exporter, "serving ").split("serving ")[1].split(" on ")[0].removesuffix("metrics")
        return exporter

    def start_named(self, name, *arguments, until=None):
        """`headroom replay` under another name, as soon as it has said so."""
        link = self.folder / name
        if not link.exists():
            link.symlink_to(COMMAND)
        error_path = self.folder / f"stderr-{name}-{time.monotonic_ns()}"
        with open(error_path, "wb") as error_file:
            process = subprocess.Popen([link, "replay", *map(str, arguments)], env=self.environment(), stdout=subprocess.PIPE,
                                       stderr=error_file, text=True)
        process.error_path = error_path
        self.end_with_test(process)
        if until:
            self.wait_for(process, until)
        return process

    def held(self, name, history, records, *arguments):
        return self.start_named(name, DATA / f"{history}.csv.xz", "--stop-after", records, "--hold", "1h", *arguments, until="holding")

    def states(self, state):
        return sorted((process["program"], process["state"]) for process in state["processes"])

    @classmethod
    def setUpClass(cls):
        schema = json.loads(SCHEMA.read_text())
        jsonschema.Draft202012Validator.check_schema(schema)
        cls.validator = jsonschema.Draft202012Validator(schema)


class MachineState(MachineTest):
    def test_figures_are_those_of_ps_for_processes_at_rest(self):
        self.start_export()
        processes = [self.held("train", "resnet", 4000, "--budget", "3GiB"), self.held("serve", "gpt2", 3000),
                     self.held("embed", "vit_threads", 8000, "--budget", "800MiB"), self.held("score", "oom_batch", 1000)]
        state = self.state("", lambda s: len(s["processes"]) == 4)
        rows = {row["pid"]: row for row in self.json_of("ps", "--json")}
        self.assertEqual(set(rows), {process.pid for process in processes})
        for one in state["processes"]:
            row = rows[one["pid"]]
            self.assertGreater(row["allocated_bytes"], 0)
            for key in ("pid", "run", "program", "state", "budget_bytes", "allocated_bytes", "claimed_bytes", "peak_bytes",
                        "live_allocations", "pressure", "failures"):
                self.assertEqual(one[key], row[key], (one["program"], key))
        for process in processes:
            self.assertIn(f"(pid {process.pid}, run ", self.fetch(""))

    def test_who_died_is_told_with_what_it_held(self):
        self.start_export("--dump-dir", "off")
        killed, exited = self.held("train", "resnet", 4000), self.start_named("eval", DATA / "oom_batch.csv.xz", "--budget", "1GiB",
                                                                              until=None)
        before = self.state("?detail=auto", lambda s: ("train", "living") in self.states(s))
        held = next(one for one in before["processes"] if one["pid"] == killed.pid)
        self.kill(killed)
        exited.wait()
        state = self.state("", lambda s: self.states(s) == [("eval", "exited"), ("train", "killed")])
        of = {one["program"]: one for one in state["processes"]}
        for key in ("id", "allocated_bytes", "peak_bytes", "live_allocations", "failures"):
            self.assertEqual(of["train"][key], held[key], key)
        self.assertEqual(of["train"]["allocated_bytes"], 3_129_743_888)
        (manager,) = of["train"]["managers"]
        self.assertEqual(sum(tag["bytes"] for tag in manager["tags"]["list"]), 3_129_743_888)
        self.assertGreaterEqual(of["train"]["ended_seconds"], 0)
        self.assertEqual(of["eval"]["allocated_bytes"], 0)
        self.assertGreater(of["eval"]["failures"], 0)
        self.assertGreater(len(of["eval"]["last_failures"]), 0)
        with self.assertRaises(urllib.error.HTTPError) as refused:
            self.fetch(f"snapshot.json?process={killed.pid}")
        with refused.exception as error:
            self.assertEqual(error.code, 404)
            self.assertIn("has ended", error.read().decode())

    def test_failures_from_before_anybody_looked_are_told(self):
        self.start_export()
        process = self.held("train", "gpt2", 6000, "--budget", "1GiB")
        (one,) = self.state("?detail=auto", lambda s: s["processes"])["processes"]
        self.assertGreater(one["failures"], 0)
        self.assertGreater(len(one["last_failures"]), 0)
        self.assertEqual(one["pid"], process.pid)

    def test_a_snapshot_is_of_the_process_that_is_named(self):
        self.start_export()
        train, serve = self.held("train", "resnet", 4000), self.held("serve", "gpt2", 3000)
        self.state("", lambda s: len(s["processes"]) == 2)
        for process, program in ((train, "train"), (serve, "serve")):
            snapshot = json.loads(self.fetch(f"snapshot.json?process={process.pid}&events=0"))
            self.assertEqual((snapshot["process"]["pid"], snapshot["process"]["program"]), (process.pid, program))
        for query, code, words in (("", 400, "2 processes live here; expected ?process=PID"), ("?process=x", 400, "expected PID or PID-RUN"),
                                   ("?process=1", 404, "is not known here; expected one of: ")):
            with self.assertRaises(urllib.error.HTTPError) as refused:
                self.fetch("snapshot.json" + query)
            with refused.exception as error:
                text = error.read().decode()
                self.assertEqual(error.code, code)
                self.assertIn(words, text)
                self.assertIn(f"{train.pid}-", text)

    def test_a_file_that_is_truncated_is_shown_no_more_and_ends_nobody(self):
        exporter = self.start_export("--dump-dir", "off")
        kept, cut = self.held("train", "resnet", 4000), self.held("serve", "gpt2", 3000)
        before = {one["program"]: one for one in self.state("", lambda s: len(s["processes"]) == 2)["processes"]}
        os.truncate(next(self.flights.glob(f"*.{cut.pid}.*.flight")), 8192)
        deadline = time.monotonic() + PATIENCE
        while True:
            state = self.state("")
            for one in state["processes"]:  # while it is there, its figures are those that it had
                for key in ("program", "state", "allocated_bytes", "peak_bytes", "failures", "live_allocations"):
                    self.assertEqual(one[key], before[one["program"]][key])
            if len(state["processes"]) == 1:
                break
            self.assertLess(time.monotonic(), deadline)
        self.assertEqual([one["pid"] for one in state["processes"]], [kept.pid])
        self.assertIsNone(exporter.poll())
        self.assertEqual(json.loads(self.fetch("snapshot.json?events=0"))["process"]["pid"], kept.pid)


class MachinePage(MachineTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.browser = Browser()
        cls.addClassCleanup(cls.browser.close)

    def open(self, address=""):
        page = self.browser.open(self.url + address)
        self.addCleanup(page.call, "Page.close")
        page.size(1280, 1000)
        page.wait_for(LIVE)
        return page

    def picture(self, page, name):
        if folder := os.environ.get("HEADROOM_SCREENSHOTS"):
            page.screenshot(f"{folder}/machine-{name}.png")

    def machine(self):
        """Four that replay, one that is killed and one that has exited; the page's state says so when this returns."""
        exporter = self.start_export("--dump-dir", "off")
        replays = [self.start_named(name, DATA / f"{history}.csv.xz", "--loop", "forever", "--stretch", "10s", *more)
                   for name, history, more in (("train", "resnet", ("--budget", "3GiB", "--hook", "cache:256MiB:1")),
                                               ("finetune", "gpt2", ("--budget", "1GiB")), ("serve", "vit_threads", ("--budget", "4GiB")),
                                               ("embed", "oom_batch", ()))]
        killed = self.held("score", "resnet", 4000, "--budget", "3200MiB")
        self.start_named("eval", self.write("tiny.csv", HEADER + "1,1,allocate,0x1000,256,0\n1,2,free,0x1000,256,0\n")).wait()
        self.state("?detail=", good=lambda s: ("score", "living") in self.states(s))
        self.kill(killed)
        self.state("?detail=", good=lambda s: self.states(s) == [("embed", "living"), ("eval", "exited"), ("finetune", "living"), ("score", "killed"),
                                                     ("serve", "living"), ("train", "living")])
        return exporter, replays, killed

    def row_of(self, pid):
        return f"document.querySelector('[data-process^=\"{pid}-\"] .row')"

    def test_lists_who_lives_and_who_died_and_opens_them(self):
        _, replays, killed = self.machine()
        page = self.open()
        page.wait_for(f"{ROWS}.length === 6")
        said = "Object.fromEntries([...document.querySelectorAll('.process')].map(p => [p.querySelector('.name b').textContent, p.querySelector('.state').textContent]))"
        states = page.ask(said)
        self.assertEqual({name for name, state in states.items() if state.startswith("living ")}, {"train", "finetune", "serve", "embed"})
        self.assertRegex(states["score"], r"^killed .* ago$")
        self.assertRegex(states["eval"], r"^exited .* ago$")
        self.assertEqual(page.ask("[...document.querySelectorAll('#dead .name b')].map(n => n.textContent).sort()"), ["eval", "score"])
        self.assertEqual(page.ask("document.querySelector('#totals [data-name=living] dd').textContent"), "4")
        self.assertEqual(page.ask("document.querySelector('#totals [data-name=killed] dd').textContent"), "1")
        self.assertFalse(page.ask("document.querySelector('#snapshot').checkVisibility()"))
        self.picture(page, "list")

        # With the mouse, and what was held by somebody who is no more.
        page.ask(f"{self.row_of(killed.pid)}.click()")
        page.wait_for(f"document.querySelectorAll('[data-process^=\"{killed.pid}-\"] [data-manager]').length === 1")
        value = page.ask(f"document.querySelector('[data-process^=\"{killed.pid}-\"] [data-manager] data[data-name=allocated]').value")
        self.assertEqual(value, str(3_129_743_888))
        page.ask(f"{self.row_of(killed.pid)}.click()")

        # With the keyboard alone: from row to row, and into one.
        page.ask("document.querySelector('.row').focus()")
        page.press("ArrowDown", 40)
        page.press("Enter", 13, "\r")
        opened = page.ask("document.activeElement.closest('.process').dataset.process")
        page.wait_for("document.activeElement.closest('.process').querySelectorAll('[data-manager]').length === 1")
        self.assertEqual(page.ask("location.hash"), f"#{opened}")
        link = page.ask("document.activeElement.closest('.process').querySelector('.title a').getAttribute('href')")
        self.assertEqual(link, f"snapshot.json?process={opened}")
        self.picture(page, "open")
        page.press("Escape", 27)
        self.assertEqual(page.ask("[document.querySelectorAll('.body:not([hidden])').length, location.hash]"), [0, ""])

        # An address that names some opens them.
        other = self.open(f"#{opened},1-00000000")
        other.wait_for(f"document.querySelectorAll('[data-process=\"{opened}\"] [data-manager]').length === 1")
        self.assertIn("No longer known here: pid 1, run 00000000.", other.ask("document.querySelector('#gone').textContent"))
        # Who dies while it is looked at goes to the others, and stays open.
        process = next(one for one in replays if opened.startswith(f"{one.pid}-"))
        self.kill(process)
        other.wait_for(f"document.querySelectorAll('#dead [data-process=\"{opened}\"] [data-manager]').length === 1")
        self.assertEqual(other.ask("document.querySelector('#totals [data-name=killed] dd').textContent"), "2")
        for one in (page, other):
            self.assertEqual(one.errors, [])

    def test_a_filter_by_keyboard_finds_one(self):
        self.machine()
        page = self.open()
        page.wait_for(f"{ROWS}.length === 6")
        page.press("/", 191, "/")
        self.assertEqual(page.ask("[document.activeElement.id, document.activeElement.value]"), ["filter", ""])
        page.type("killed")
        self.assertEqual(page.ask("[...document.querySelectorAll('.process .name b')].map(n => n.textContent)"), ["score"])
        self.assertEqual(page.ask("document.querySelector('#shown').textContent"), "1 of 6 processes")
        self.assertEqual(page.errors, [])

    def test_one_alone_is_open_already(self):
        self.start_export()
        self.held("train", "resnet", 4000)
        page = self.open()
        page.wait_for("document.querySelectorAll('[data-manager]').length === 1")
        self.assertEqual(page.errors, [])

    def test_figures_are_those_of_ps_for_processes_at_rest(self):
        self.start_export()
        self.held("train", "resnet", 4000, "--budget", "3GiB")
        self.held("serve", "gpt2", 3000)
        self.held("embed", "vit_threads", 8000, "--budget", "800MiB")
        self.held("score", "oom_batch", 1000)
        page = self.open()
        page.wait_for(f"{ROWS}.length === 4")
        shown = page.ask("""Object.fromEntries([...document.querySelectorAll('.process')].map(p => [parseInt(p.dataset.process),
          [...p.querySelectorAll('.row data')].map(d => d.value).concat(p.querySelector('.chip').textContent)]))""")
        rows = {str(row["pid"]): [str(row["allocated_bytes"]), "" if row["budget_bytes"] is None else str(row["budget_bytes"]),
                                  str(row["failures"]), row["pressure"]] for row in self.json_of("ps", "--json")}
        self.assertEqual(len(rows), 4)
        self.assertEqual(shown, rows)
        page.ask("document.querySelectorAll('.row').forEach(row => row.click())")
        page.wait_for("document.querySelectorAll('[data-manager]').length === 4")
        peaks = page.ask("[...document.querySelectorAll('[data-manager] [data-name=peak] data')].map(d => d.value).sort()")
        self.assertEqual(peaks, sorted(str(row["peak_bytes"]) for row in self.json_of("ps", "--json")))
        self.assertEqual(page.errors, [])

    def test_light_dark_and_small(self):
        self.machine()
        page = self.open()
        page.wait_for(f"{ROWS}.length === 6")
        page.ask("document.querySelector('.row').click()")
        page.wait_for("document.querySelectorAll('[data-manager]').length === 1")
        for scheme in ("light", "dark"):
            page.prefer(scheme)
            worst, where = page.worst_contrast()
            self.assertGreaterEqual(worst, 4.5, f"{scheme}: {where}")  # WCAG 2, AA
            # Whatever pressure there happens to be: each, on every chip. Between two refreshes, in one go.
            for level in ("none", "low", "medium", "high", "critical"):
                worst, where = page.ask(f"""(() => {{
                  document.querySelectorAll('.chip').forEach(chip => {{ chip.className = 'chip {level}'; }});
                  return {WORST_CONTRAST};
                }})()""")
                self.assertGreaterEqual(worst, 4.5, f"{scheme}, {level}: {where}")
        self.picture(page, "dark")
        for width in (1000, 760, 360):
            page.size(width, 740)
            self.assertLessEqual(page.ask("document.documentElement.scrollWidth"), width)
            self.picture(page, f"{width}")
        unnamed = page.ask("""[...document.querySelectorAll('button, input, select, [role=meter], [role=img], [role=region]')]
          .filter(n => n.checkVisibility() && !n.getAttribute('aria-label') && !n.textContent.trim() && !(n.labels || []).length).length""")
        self.assertEqual(unnamed, 0)
        self.assertEqual(page.errors, [])


if __name__ == "__main__":
    if find_chromium() is None:
        print("skipped: there is no Chromium (chromium-headless-shell, or HEADROOM_CHROMIUM)")
        sys.exit(77)
    unittest.main()
