"""Post-mortems: the one that a replay writes by itself, and `headroom dump` of the living and the dead; each against the published schema.

The schema is checked by python3-jsonschema: Draft 2020-12, as the schema says of itself.
"""
import json
import os
import subprocess
import unittest
from pathlib import Path

import jsonschema

from command_runner import COMMAND, DATA, HEADER, CommandTest
from expected_refusals import simulate

MIB, GIB = 1 << 20, 1 << 30
SCHEMA = Path(__file__).resolve().parents[2] / "lib/schema/post_mortem.schema.json"
OOM = DATA / "oom_batch.csv.xz"
FIRST_REFUSED = 105_119_891
FIRST_REFUSED_RECORD = 2_331  # line 2,332 of the file, whose first line is the header
TOP = ("schema reason contents written process clock failure devices ledgers hooks in_flight first_failures sites names live events "
       "lanes end").split()


def whole(value):
    """Numbers above 2^53 are strings of digits, addresses strings of hexadecimal ones."""
    return int(value, 0) if isinstance(value, str) else value


class Dumps(CommandTest):
    @classmethod
    def setUpClass(cls):
        cls.schema = json.loads(SCHEMA.read_text())
        jsonschema.Draft202012Validator.check_schema(cls.schema)
        cls.validator = jsonschema.Draft202012Validator(cls.schema)

    def valid(self, text):
        def no_constants(word):
            self.fail(f"{word} is no JSON")
        dump = json.loads(text, parse_constant=no_constants)
        error = jsonschema.exceptions.best_match(self.validator.iter_errors(dump))
        self.assertIsNone(error, error and f"{list(error.absolute_path)}: {error.message[:300]}")
        self.check_sums(dump)
        return dump

    def check_sums(self, dump):
        """What must be true of every dump of a program at rest: its parts add up to its books."""
        live = dump["live"]
        self.assertEqual(live["allocations"], sum(ledger["live_allocations"] for ledger in dump["ledgers"]))
        self.assertEqual(live["bytes"], sum(ledger["allocated_bytes"] for ledger in dump["ledgers"]))
        self.assertEqual(live["listed"], len(live["rows"]))
        self.assertEqual(live["listed_bytes"], sum(row[1] for row in live["rows"]))
        sizes = [row[1] for row in live["rows"]]
        self.assertEqual(sizes, sorted(sizes, reverse=True))
        for ledger in dump["ledgers"]:
            self.assertEqual(sum(tag["live_bytes"] for tag in ledger["tags"]), ledger["allocated_bytes"])
            self.assertLessEqual(ledger["allocated_bytes"], ledger["peak_bytes"])
            counters = ledger["counters"]
            self.assertEqual(counters["allocations"] - counters["frees"], ledger["live_allocations"])
            self.assertEqual(counters["allocation_bytes"] - counters["deallocation_bytes"], ledger["allocated_bytes"])
            self.assertEqual(sum(counters["size_histogram"]), counters["allocations"])
        self.assertEqual(sum(site["live_bytes"] for site in dump["sites"]), live["bytes"])
        if dump["contents"]["events"] == "included":
            rows = dump["events"]["rows"]
            self.assertEqual(dump["end"]["events_listed"], len(rows))
            ticks = [whole(row[1]) for row in rows]
            self.assertEqual(ticks, sorted(ticks))
            for lane in dump["lanes"]:
                for ring in (lane["main"], lane["journal"]):
                    self.assertEqual(ring["listed"] + ring["lost"], ring["recorded"])
                    if ring["listed"]:
                        self.assertLess(ring["last"], ring["recorded"])
                        self.assertGreaterEqual(ring["last"] - ring["first"] + 1, ring["listed"])

    def own_dump(self):
        names = sorted(self.dumps.iterdir())
        self.assertEqual(len(names), 1, names)
        self.assertEqual(names[0].stat().st_mode & 0o777, 0o600)
        self.assertEqual(self.dumps.stat().st_mode & 0o777, 0o700)
        return names[0]

    def test_a_replay_under_a_tight_budget_writes_one_by_itself(self):
        done = self.run_command("replay", OOM, "--budget", "5GiB", "--policy", "checkpoint")
        self.assertEqual(done.returncode, 1, done.stderr)
        path = self.own_dump()
        self.assertIn(f"headroom: out of memory; post-mortem: {path}\n", done.stderr)
        dump = self.valid(path.read_text())
        self.assertEqual(list(dump), TOP)
        self.assertEqual(dump["end"]["status"], "complete")
        self.assertEqual(path.name, f"headroom.{dump['process']['pid']}.{whole(dump['process']['run']):016x}"[:-8] + ".1.post-mortem.json")

        failure = dump["failure"]
        self.assertEqual((failure["requested_bytes"], failure["layer"], failure["kind"]), (FIRST_REFUSED, "manager", "over_budget"))
        self.assertEqual((failure["tag_name"], failure["outcome"]), (">32MiB", "failed"))
        self.assertEqual([step["step"] for step in failure["policy_steps"]], ["checkpoint", "gave_up"])
        # What an independent witness says was live when that request came.
        before = simulate(OOM, 5 * GIB, stop_after=FIRST_REFUSED_RECORD - 1)
        self.assertEqual(before["refused"], 0)
        ledger, = dump["ledgers"]
        self.assertEqual((ledger["allocated_bytes"], ledger["claimed_bytes"]), (before["live_bytes"], before["live_bytes"]))
        self.assertEqual(ledger["live_allocations"], before["live_allocations"])
        self.assertEqual(ledger["peak_bytes"], before["peak_bytes"])
        self.assertEqual(ledger["counters"]["allocations"], before["allocations"])
        self.assertEqual(ledger["budget"], {"mode": "enforce", "limit_bytes": 5 * GIB})
        self.assertEqual(failure["figures"]["claimed_bytes"], before["live_bytes"])
        self.assertEqual(failure["figures"]["required_bytes"], before["live_bytes"] + FIRST_REFUSED)
        # The top holders, then and at the peak, which here is the same moment.
        holders = [(tag["name"], tag["live_bytes"]) for tag in ledger["tags"] if tag["live_bytes"]]
        self.assertEqual([(holder["name"], holder["bytes"]) for holder in failure["holders"]], holders)
        self.assertEqual(holders[0], (">32MiB", 5_292_163_072))
        self.assertEqual(sum(bytes_ for _, bytes_ in holders), before["live_bytes"])
        self.assertEqual(ledger["at_peak"]["bytes_of_tags"], ledger["peak_bytes"])
        # The request itself is in the story, before its outcome.
        kinds = [row[4] for row in dump["events"]["rows"]]
        self.assertLess(kinds.index("refusal"), kinds.index("policy"))

    def test_it_can_be_turned_off(self):
        done = self.run_command("replay", OOM, "--budget", "5GiB", "--policy", "checkpoint",
                                environment=self.environment(HEADROOM_DUMP="off"))
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertFalse(self.dumps.exists())
        self.assertNotIn("post-mortem", done.stderr)

    def test_the_default_folder_is_the_users_own_state(self):
        environment = self.environment(XDG_STATE_HOME=str(self.folder / "state"))
        del environment["HEADROOM_DUMP_DIR"]
        self.run_command("replay", OOM, "--budget", "5GiB", "--policy", "fail", environment=environment)
        self.assertEqual(len(list((self.folder / "state/headroom").iterdir())), 1)

    def test_hooks_that_were_tried_are_told_with_their_figures(self):
        # 100 MiB miss 36 beside the hook's 128; the hook gives 64. Then 100 more miss, and the hook's other block is not enough.
        path = self.write("two.csv", HEADER + f"0,1,allocate,0xa,{100 * MIB},0\n0,2,allocate,0xb,{100 * MIB},0\n")
        done = self.run_command("replay", path, "--budget", "192MiB", "--hook", "cache:128MiB:1", "--policy", "retry")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        dump = self.valid(self.own_dump().read_text())
        failure = dump["failure"]
        self.assertEqual(failure["requested_bytes"], 100 * MIB)
        self.assertEqual([(hook["name"], hook["result"], hook["freed_bytes"]) for hook in failure["hooks"]],
                         [("cache", "freed", 64 * MIB)])
        self.assertEqual(failure["hooks"][0]["shortfall_bytes"], 72 * MIB)
        self.assertEqual([step["step"] for step in failure["policy_steps"]], ["retried", "gave_up"])
        self.assertEqual([(hook["name"], hook["runs"], hook["freed_bytes"]) for hook in dump["hooks"]], [("cache", 2, 128 * MIB)])

    def test_a_disk_without_room_costs_the_dump_and_not_the_replay(self):
        limited = "ulimit -f 0; exec \"$0\" replay \"$1\" --budget 5GiB --policy checkpoint --json"
        done = subprocess.run(["bash", "-c", limited, COMMAND, str(OOM)], env=self.environment(HEADROOM_FLIGHT="off"), capture_output=True,
                              text=True, timeout=300)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual(json.loads(done.stdout)["refused"], 17)
        self.assertEqual(list(self.dumps.iterdir()), [])
        self.assertEqual(done.stderr.count("no post-mortem could be written"), 1, done.stderr)

    def test_a_folder_that_cannot_be_is_named_once(self):
        file = self.write("file", "")
        done = self.run_command("replay", OOM, "--budget", "5GiB", "--policy", "checkpoint",
                                environment=self.environment(HEADROOM_DUMP_DIR=str(file / "dumps")))
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr, f"headroom: out of memory; no post-mortem could be written: {file}/dumps: Not a directory\n")

    def test_a_dump_never_lies_over_what_it_is_of_or_one_before(self):
        self.run_command("replay", DATA / "resnet.csv.xz", "--stop-after", 10, "--keep")
        file, = self.flights.iterdir()
        content = file.read_bytes()
        itself = self.run_command("dump", file, "-o", self.flights / "." / file.name)
        self.assertEqual((itself.returncode, itself.stdout), (2, ""))
        self.assertIn("is the flight file itself", itself.stderr)
        self.assertEqual(file.read_bytes(), content)
        for _ in range(3):
            done = subprocess.run([COMMAND, "dump", file], env=self.environment(), cwd=self.folder, capture_output=True, timeout=300)
            self.assertEqual(done.returncode, 0, done.stderr)
        names = sorted(path.name for path in self.folder.glob("*.post-mortem.json"))
        stem = names[-1].removesuffix(".post-mortem.json")
        self.assertEqual(sorted([f"{stem}.post-mortem.json", f"{stem}.2.post-mortem.json", f"{stem}.3.post-mortem.json"]), names)

    def test_dump_of_the_living_and_the_dead_agree(self):
        name, records, live_bytes, live = "resnet", 4_000, 3_129_743_888, 748
        process = self.start_command("replay", DATA / f"{name}.csv.xz", "--stop-after", records, "--hold", "1h")
        self.wait_for(process, "holding")
        done = self.run_command("dump", process.pid, "-o", "-", "--no-events")
        self.assertEqual(done.returncode, 0, done.stderr)
        living = self.valid(done.stdout)
        self.assertEqual((living["process"]["pid"], living["process"]["liveness"]), (process.pid, "living"))
        self.assertEqual((living["live"]["bytes"], living["live"]["allocations"]), (live_bytes, live))
        self.assertEqual(living["contents"]["events"], "left_out")
        self.assertNotIn("events", living)
        self.assertNotIn("failure", living)

        self.kill(process)
        file, = self.flights.glob(f"*.{process.pid}.*.flight")
        out = self.folder / "dead.json"
        done = self.run_command("dump", file, "-o", out)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertTrue(done.stdout.startswith(f"wrote {out} ("), done.stdout)
        dead = self.valid(out.read_text())
        self.assertEqual(dead["process"]["liveness"], "dead")
        for key in ("ledgers", "sites", "devices", "live", "clock", "hooks"):
            self.assertEqual(dead[key], living[key], key)
        # By number too, and through a pipe.
        self.assertEqual(self.valid(self.run_command("dump", process.pid, "-o", "-", "--no-events").stdout)["live"], dead["live"])
        piped = subprocess.run([COMMAND, "dump", "-", "-o", "-", "--no-events"], env=self.environment(), input=file.read_bytes(),
                               capture_output=True, timeout=300)
        self.assertEqual(piped.returncode, 0, piped.stderr)
        self.assertEqual(self.valid(piped.stdout)["live"], dead["live"])
        # Without -o it says where it went.
        named = subprocess.run([COMMAND, "dump", str(process.pid)], env=self.environment(), cwd=self.folder, capture_output=True,
                               text=True, timeout=300)
        self.assertEqual(named.returncode, 0, named.stderr)
        written, = self.folder.glob(f"headroom.{process.pid}.*.post-mortem.json")
        self.assertTrue(named.stdout.startswith(f"wrote {written.name} ("), named.stdout)
        self.assertEqual(os.listdir(self.flights), [file.name])

    def test_what_is_no_file_is_written_into_and_links_are_followed(self):
        process = self.start_command("replay", DATA / "resnet.csv.xz", "--stop-after", 10, "--hold", "1h")
        self.wait_for(process, "holding")
        device, link, real = self.folder / "device", self.folder / "link.json", self.folder / "real.json"
        device.symlink_to("/dev/null")
        link.symlink_to(real)
        for path in (device, link):
            done = self.run_command("dump", process.pid, "-o", path)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertTrue(path.is_symlink())
        self.assertEqual(self.valid(real.read_text())["process"]["pid"], process.pid)
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE, text=True) as reader:
            try:
                done = self.run_command("dump", process.pid, "-o", pipe)
                self.assertTrue(pipe.is_fifo())
            finally:
                if not pipe.is_fifo():
                    reader.kill()
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertEqual(self.valid(reader.stdout.read())["process"]["pid"], process.pid)

    def test_what_cannot_be_dumped_is_named(self):
        text = self.write("notes.txt", "not a flight file\n")
        done = self.run_command("replay", OOM, "--budget", "5GiB", "--policy", "checkpoint")
        own = self.own_dump()
        for status, arguments, says in ((3, ("999999999",), "process 999999999 has left no flight file in"),
                                        (3, (text,), str(text)),
                                        (3, (self.folder / "missing",), "missing"),
                                        (3, (own,), "is a post-mortem already; expected a flight file or a process"),
                                        (2, (), "target is required")):
            with self.subTest(says):
                done = self.run_command("dump", *arguments)
                self.assertEqual((done.returncode, done.stdout), (status, ""), done.stderr)
                self.assertIn(says, done.stderr)
        process = self.start_command("replay", DATA / "resnet.csv.xz", "--stop-after", 10, "--hold", "1h")
        self.wait_for(process, "holding")
        done = self.run_command("dump", process.pid, "-o", self.folder / "no" / "such" / "folder.json")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("folder.json: No such file or directory", done.stderr)
        with open("/dev/full", "wb") as full:
            done = subprocess.run([COMMAND, "dump", str(process.pid), "-o", "-"], env=self.environment(), stdout=full,
                                  stderr=subprocess.PIPE, text=True, timeout=300)
        self.assertEqual(done.returncode, 2)
        self.assertIn("No space left on device", done.stderr)


if __name__ == "__main__":
    unittest.main()
