"""`headroom convert`: each format of each kind of file, by what the format's readers demand and by what `headroom summary` says.

The rules of the Trace Event format are checked here, and nowhere taken from the writer: see ChromeTrace.
"""
import json
import os
import subprocess
import unittest
from collections import defaultdict
from pathlib import Path

import jsonschema

from command_runner import COMMAND, DATA, HEADER, CommandTest

SCHEMAS = Path(__file__).resolve().parents[2] / "lib/schema"
RESNET, OOM = DATA / "resnet.csv.xz", DATA / "oom_batch.csv.xz"
FORMATS = ("chrome", "torch", "csv", "folded", "json")


class ChromeTrace:
    """A trace that keeps the rules, or an AssertionError."""

    NEEDED = {"M": {"name", "args"}, "C": {"name", "ts", "args"}, "B": {"name", "ts"}, "E": {"ts"}, "X": {"name", "ts", "dur"},
              "i": {"name", "ts", "s"}}

    def __init__(self, text):
        def no_constants(word):
            raise AssertionError(f"{word} is no JSON")
        self.whole = json.loads(text, parse_constant=no_constants)
        self.counters = defaultdict(list)  # by name: (time, value)
        self.slices = []  # (thread, name, begin, end, arguments of both)
        self.instants = defaultdict(list)
        open_slices, last = defaultdict(list), defaultdict(float)
        for event in self.whole["traceEvents"]:
            assert {"ph", "pid", "tid"} | self.NEEDED[event["ph"]] <= event.keys(), event
            assert isinstance(event["pid"], int) and isinstance(event["tid"], int), event
            if event["ph"] == "M":
                assert event["name"] in ("process_name", "thread_name") and isinstance(event["args"]["name"], str), event
                continue
            time = event["ts"]
            assert isinstance(time, (int, float)) and time >= 0, event
            track = ("counter", event["name"]) if event["ph"] == "C" else ("thread", event["tid"])
            assert time >= last[track], (event, last[track])
            last[track] = time
            if event["ph"] == "C":
                assert event["name"].endswith("_bytes") and len(event["args"]) == 1, event
                (series, value), = event["args"].items()
                assert series.endswith("_bytes") and isinstance(value, int) and value >= 0, event
                self.counters[event["name"]].append((time, value))
            elif event["ph"] == "B":
                open_slices[event["tid"]].append(event)
            elif event["ph"] == "E":
                begin = open_slices[event["tid"]].pop()  # fails: an end without a begin
                assert event.get("name", begin["name"]) == begin["name"], (begin, event)
                self.slices.append((event["tid"], begin["name"], begin["ts"], time, {**begin["args"], **event["args"]}))
            elif event["ph"] == "i":
                assert event["s"] in ("t", "p", "g"), event
                self.instants[event["cat"]].append(event)
        assert not any(open_slices.values()), "slices that never end"
        for name, values in self.counters.items():
            assert values[0][0] == 0, f"{name} does not begin at time 0"

    def at_end(self, ending):
        return {name.removesuffix(ending): values[-1][1] for name, values in self.counters.items() if name.endswith(ending)}


class Convert(CommandTest):
    def convert(self, source, form, *options, status=0, **more):
        """What is written, as bytes, and what is said."""
        path = self.folder / f"out{len(list(self.folder.glob('out*')))}.{form}"
        done = self.run_command("convert", source, "--to", form, "-o", path, *options, **more)
        self.assertEqual(done.returncode, status, f"{source} {form} {options}: {done.stdout}{done.stderr}")
        self.assertEqual(list(self.folder.glob("*.tmp")), [])
        self.assertEqual(path.exists(), status == 0)
        return (path, done.stderr)

    def chrome(self, source, *options):
        path, _ = self.convert(source, "chrome", *options)
        trace = ChromeTrace(path.read_text())
        self.check_sums(trace, source)
        return trace

    def check_sums(self, trace, source):
        """What managers hold in the end is what the summary says; what their tags hold adds up to it, at the end and at any time."""
        held = trace.at_end(" allocated_bytes")
        self.assertEqual(sum(held.values()), self.json_of("summary", source, "--json")["live_bytes"])
        for manager, in_all in held.items():
            parts = [values for name, values in trace.counters.items()
                     if name.startswith(manager + " ") and name.endswith((" tag_bytes", " unattributed_bytes"))]
            self.assertEqual(sum(values[-1][1] for values in parts), in_all)
            sums = defaultdict(int)
            for values in parts:
                for time, change in zip((time for time, _ in values), self.changes(values)):
                    sums[time] += change
            total, at = 0, {}
            for time in sorted(sums):
                total += sums[time]
                at[time] = total
            of_manager = dict(trace.counters[manager + " allocated_bytes"])  # the last one of each instant
            for time, value in of_manager.items():
                if time in at:
                    self.assertEqual(at[time], value, f"{manager} at {time}")

    @staticmethod
    def changes(values):
        before = 0
        for _, value in values:
            yield value - before
            before = value

    def replayed(self, *arguments, status=0):
        """The flight file of a replay."""
        before = set(self.flights.glob("*.flight"))
        done = self.run_command("replay", *arguments, "--keep", environment=self.environment(HEADROOM_DUMP="off"))
        self.assertEqual(done.returncode, status, done.stderr)
        (file,) = set(self.flights.glob("*.flight")) - before
        return file

    def killed(self, *arguments):
        process = self.start_command("replay", *arguments, "--hold", "1h")
        self.wait_for(process, "holding")
        self.kill(process)
        (file,) = self.flights.glob(f"*.{process.pid}.*.flight")
        return file

    # ── chrome ──

    def test_a_replay_with_hooks_and_refusals_is_a_trace(self):
        # 100 MiB miss 36 beside the hook's 128; the hook gives 64. Then 100 more miss 72, and the hook's other block is not enough.
        mib = 1 << 20
        source = self.write("short.csv", HEADER + "".join(f"1,{n},allocate,0x{n}0,{100 * mib},0x0\n" for n in (1, 2)))
        file = self.replayed(source, "--budget", "192MiB", "--hook", "cache:128MiB:1", "--policy", "retry", status=1)
        trace = self.chrome(file)
        hooks = [arguments for _, name, _, _, arguments in trace.slices if name == "hook cache"]
        self.assertEqual([(hook["shortfall_bytes"], hook["estimate_bytes"], hook["reported_bytes"], hook["freed_bytes"])
                          for hook in hooks],
                         [(36 * mib, 128 * mib, 64 * mib, 64 * mib), (72 * mib, 128 * mib, 64 * mib, 64 * mib)])
        refused = [event["args"] for event in trace.instants["failure"]]
        self.assertEqual([(event["requested_bytes"], event["kind"], event["claimed_bytes"], event["limit_bytes"])
                          for event in refused],
                         [(100 * mib, "over_budget", 128 * mib, 192 * mib), (100 * mib, "over_budget", 164 * mib, 192 * mib)])
        self.assertEqual([name for name in (event["name"] for event in trace.instants["policy"]) if name in ("recovered", "gave_up")],
                         ["recovered", "gave_up"])
        self.assertTrue(trace.instants["pressure"])
        self.assertEqual(trace.at_end(" limit_bytes"), {"replay": 192 * mib})
        self.assertEqual(max(value for _, value in trace.counters["replay allocated_bytes"]), 164 * mib)

    def test_a_long_story_with_checkpoints_is_a_trace(self):
        file = self.replayed(OOM, "--budget", "5GiB", "--policy", "checkpoint", "--hook", "cache:1GiB:1", status=1)
        trace = self.chrome(file)
        self.assertTrue(any(name == "checkpoint" for _, name, _, _, _ in trace.slices))
        self.assertTrue(any(name == "hook cache" for _, name, _, _, _ in trace.slices))

    def test_a_killed_process_and_its_post_mortem_are_the_same_trace(self):
        file = self.killed(RESNET, "--stop-after", 5_000)
        trace = self.chrome(file)
        dump = self.folder / "killed.json"
        self.assertEqual(self.run_command("dump", file, "-o", dump).returncode, 0)
        of_dump = self.chrome(dump)
        self.assertEqual(of_dump.at_end("_bytes"), trace.at_end("_bytes"))
        self.assertEqual(of_dump.counters, trace.counters)

    def test_a_file_whose_rings_overflowed_ends_as_its_books_do(self):
        file = self.replayed(DATA / "gpt2.csv.xz", "--stop-after", 60_000)
        self.assertGreater(self.json_of("summary", file, "--json")["events_lost"], 0)
        path, said = self.convert(file, "chrome")
        self.assertIn("were overwritten", said)
        self.check_sums(ChromeTrace(path.read_text()), file)

    def test_a_gap_in_the_records_is_an_instant_and_the_end_is_that_of_the_books(self):
        dump = self.folder / "whole.json"
        self.assertEqual(self.run_command("dump", self.killed(RESNET, "--stop-after", 500), "-o", dump).returncode, 0)
        document = json.loads(dump.read_text())
        rows, lost = document["events"]["rows"], 20
        operations = [number for number, row in enumerate(rows) if row[4] in ("allocate", "free")]
        for number in reversed(operations[200:200 + lost]):
            del rows[number]
        lane = max(document["lanes"], key=lambda each: each["main"]["recorded"])["main"]
        lane["listed"] -= lost
        lane["lost"] += lost
        document["end"]["events_listed"] -= lost
        trace = self.chrome(self.write("gap.json", json.dumps(document)))
        losses = [event["name"] for event in trace.instants["loss"]]
        self.assertIn(f"{lost} operations missing", losses)
        self.assertEqual(losses[-1], f"{lost} records lost")

    def test_without_events_there_are_counters(self):
        file = self.killed(RESNET, "--stop-after", 500)
        dump = self.folder / "state.json"
        self.assertEqual(self.run_command("dump", file, "-o", dump, "--no-events").returncode, 0)
        self.chrome(dump)

    def test_histories_are_traces(self):
        for name in ("resnet", "oom_batch"):
            with self.subTest(name):
                trace = self.chrome(DATA / f"{name}.csv.xz")
                failures = self.json_of("summary", DATA / f"{name}.csv.xz", "--json")["trace_failures"]
                self.assertEqual(len(trace.instants["failure"]), failures)

    # ── csv ──

    FIGURES = ("peak_bytes", "live_bytes", "live_allocations")

    def test_a_history_comes_back(self):
        for name in ("resnet", "oom_batch"):
            with self.subTest(name):
                source = DATA / f"{name}.csv.xz"
                path, _ = self.convert(source, "csv")
                before, after = self.json_of("summary", source, "--json"), self.json_of("summary", path, "--json")
                for figure in (*self.FIGURES, "trace_failures", "elapsed_seconds"):
                    self.assertEqual(after[figure], before[figure], figure)
                again, _ = self.convert(path, "csv")
                self.assertEqual(again.read_bytes(), path.read_bytes())

    def test_a_log_of_a_process_replays_to_the_same_end(self):
        file = self.killed(OOM, "--budget", "750MiB", "--policy", "fail", "--stop-after", 1_000)
        books = self.json_of("summary", file, "--json")
        self.assertEqual(books["events_lost"], 0)
        self.assertGreater(books["refused"], 0)
        path, said = self.convert(file, "csv")
        self.assertEqual(said, "")
        log = self.json_of("summary", path, "--json")
        for figure in self.FIGURES:
            self.assertEqual(log[figure], books[figure], figure)
        self.assertEqual(log["trace_failures"], books["refused"])
        self.assertEqual(log["unmatched_frees"], 0)
        replay = self.json_of("replay", path, "--json")
        for figure in self.FIGURES:
            self.assertEqual(replay[figure], books[figure], figure)

    # ── folded ──

    def stacks(self, path):
        lines = path.read_text().splitlines()
        self.assertEqual(lines, sorted(lines, key=lambda line: line.rsplit(" ", 1)[0].encode()))
        stacks = {}
        for line in lines:
            stack, count = line.rsplit(" ", 1)
            self.assertEqual(len(stack.split(";")), 4, line)
            self.assertNotIn(stack, stacks)
            stacks[stack] = int(count)
        return stacks

    def test_stacks_add_up_to_what_is_live_and_to_the_peak(self):
        for source in (RESNET, OOM, self.killed(RESNET, "--stop-after", 5_000)):
            with self.subTest(source):
                figures = self.json_of("summary", source, "--json")
                path, _ = self.convert(source, "folded")
                self.assertEqual(sum(self.stacks(path).values()), figures["live_bytes"])
                path, _ = self.convert(source, "folded", "--at", "peak")
                self.assertEqual(sum(self.stacks(path).values()), figures["peak_bytes"])

    def test_who_held_the_peak_is_who_the_books_noted(self):
        # 40 of <1MiB and 2 MiB, live together; then the small one goes.
        mib = 1 << 20
        source = self.write("two.csv", HEADER + f"1,1,allocate,0x10,40,0x0\n1,2,allocate,0x20,{2 * mib},0x0\n1,3,free,0x10,40,0x0\n")
        path, _ = self.convert(self.killed(source), "folded", "--at", "peak")
        self.assertEqual({stack.split(";")[2]: count for stack, count in self.stacks(path).items()},
                         {"<1MiB": 40, "1-32MiB": 2 * mib})

    # ── json ──

    def valid(self, path, schema):
        document = json.loads(path.read_text())
        validator = jsonschema.Draft202012Validator(json.loads((SCHEMAS / schema).read_text()))
        error = jsonschema.exceptions.best_match(validator.iter_errors(document))
        self.assertIsNone(error, error and f"{list(error.absolute_path)}: {error.message[:300]}")
        return document

    def test_a_history_as_json_keeps_its_schema_and_adds_up(self):
        jsonschema.Draft202012Validator.check_schema(json.loads((SCHEMAS / "history.schema.json").read_text()))
        path, _ = self.convert(OOM, "json")
        document = self.valid(path, "history.schema.json")
        self.assertEqual(list(document), ["schema", "version", "name", "start_clock_ns", "columns", "events", "tags", "sites",
                                          "managers", "summary", "end"])
        figures = self.json_of("summary", OOM, "--json")
        place = {name: number for number, name in enumerate(document["columns"])}
        live = 0
        for row in document["events"]:
            sign = {"allocate": 1, "free": -1, "allocate_failure": 0}[row[place["action"]]]
            live += sign * row[place["bytes"]]
            self.assertEqual(row[place["allocated_bytes"]], live)
        self.assertEqual(live, figures["live_bytes"])
        summary = document["summary"]
        self.assertEqual((summary["live_bytes"], summary["live_allocations"], summary["failures"], summary["events"]),
                         (figures["live_bytes"], figures["live_allocations"], figures["trace_failures"], len(document["events"])))
        self.assertEqual([manager["peak_bytes"] for manager in document["managers"]], [figures["peak_bytes"]])

    def test_of_a_process_the_json_is_its_post_mortem(self):
        file = self.killed(RESNET, "--stop-after", 500)
        path, _ = self.convert(file, "json")
        self.assertEqual(self.valid(path, "post_mortem.schema.json")["reason"]["text"], "converted with headroom convert")
        again, _ = self.convert(path, "json")
        self.assertEqual(again.read_bytes(), path.read_bytes())
        cut = self.write("cut.json", path.read_bytes()[:-100])
        _, said = self.convert(cut, "json", status=3)
        self.assertIn("truncated", said)

    # ── torch ──

    def test_torch_is_a_pickle(self):
        path = self.folder / "snapshot.pickle"
        done = self.run_command("convert", RESNET, "--to", "torch", "-o", path)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(path.read_bytes().startswith(b"\x80"))

    # ── from where, to where, and what is wrong ──

    def test_from_a_pipe_to_a_pipe(self):
        text = (HEADER + "1,1,allocate,0x10,40,0x0\n").encode()
        done = subprocess.run([COMMAND, "convert", "-", "--to", "folded", "-o", "-"], env=self.environment(), input=text,
                              capture_output=True, timeout=300)
        self.assertEqual((done.returncode, done.stdout, done.stderr),
                         (0, b"standard input;history;untagged;unknown site 40\n", b""))

    def test_without_o_the_name_is_the_inputs_and_nothing_is_overwritten(self):
        source = self.write("some.csv", HEADER + "1,1,allocate,0x10,40,0x0\n")
        before = source.read_bytes()
        for expected in ("some.2.csv", "some.3.csv"):
            done = subprocess.run([COMMAND, "convert", source, "--to", "csv"], env=self.environment(), cwd=self.folder,
                                  capture_output=True, text=True, timeout=300)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertTrue(done.stdout.startswith(f"wrote {expected} ("), done.stdout)
            self.assertTrue((self.folder / expected).exists())
        self.assertEqual(source.read_bytes(), before)

    def test_a_link_is_followed(self):
        source = self.write("some.csv", HEADER + "1,1,allocate,0x10,40,0x0\n")
        target, link = self.write("target", "old"), self.folder / "link"
        link.symlink_to(target)
        self.assertEqual(self.run_command("convert", source, "--to", "folded", "-o", link).returncode, 0)
        self.assertTrue(link.is_symlink())
        self.assertTrue(target.read_text().endswith(" 40\n"))

    def refused(self, *arguments, status, says, **more):
        done = self.run_command("convert", *arguments, **more)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        for words in says:
            self.assertIn(words, done.stderr)

    def test_wrong_usage_is_named(self):
        source = self.write("some.csv", HEADER + "1,1,allocate,0x10,40,0x0\n")
        self.refused(source, "--to", "svg", status=2, says=["'svg'", *FORMATS])
        self.refused(source, status=2, says=["--to"])
        self.refused(source, "--to", "csv", "-o", source, status=2, says=["is the input itself"])
        self.refused("-", "--to", "csv", status=2, says=["-o is missing"], stdin="")
        self.refused(source, "--to", "csv", "--at", "peak", status=2, says=["--at peak", "folded"])
        self.refused(source, "--to", "folded", "--at", "noon", "-o", "-", status=2, says=["'noon'", "end or peak"])
        self.refused(source, "--to", "csv", "-o", "-", "--trace-device", "x", status=2, says=["--trace-device 'x'"])
        self.refused(source, "--to", "csv", "-o", "-", "--trace-device", "3", status=2, says=["--trace-device 3"])
        self.refused(source, "--to", "csv", "-o", "-", "--manager", "nobody", status=2, says=["'nobody'", "'history'"])
        self.refused(source, "--to", "csv", "-o", self.folder / "no" / "where", status=2, says=["where", "No such file"])
        self.assertEqual(source.read_text(), HEADER + "1,1,allocate,0x10,40,0x0\n")

    def test_broken_input_is_named_by_line_or_byte_and_leaves_no_file(self):
        source = self.write("broken.csv", HEADER + "1,1,allocate,0x10,40,0x0\n1,2,frob,0x10,40,0x0\n")
        for form in FORMATS:
            _, said = self.convert(source, form, status=3)
            self.assertIn("broken.csv:3:", said)
        flight = self.write("broken.flight", b"HRFLGHT1" + bytes(100))
        self.assertIn("broken.flight", self.convert(flight, "chrome", status=3)[1])
        dump = self.write("broken.json", b'{"schema": {"name": "headroom-post-mortem", "version": 1}, "reason": nonsense')
        self.assertIn("byte", self.convert(dump, "chrome", status=3)[1])
        self.assertIn("cannot be opened", self.convert(self.folder / "none", "chrome", status=3)[1])

    def test_a_full_disk_leaves_no_file(self):
        self.refused(RESNET, "--to", "chrome", "-o", "/dev/full", status=2, says=["/dev/full", "No space left"])
        path = self.folder / "limited.json"
        limited = "ulimit -f 1; exec \"$0\" convert \"$1\" --to chrome -o \"$2\""
        done = subprocess.run(["bash", "-c", limited, COMMAND, RESNET, path], env=self.environment(), capture_output=True,
                              text=True, timeout=300)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("File too large", done.stderr)
        self.assertEqual([name for name in os.listdir(self.folder) if name.startswith("limited")], [])

    def test_memory_does_not_go_with_the_length_of_a_history(self):
        def peak_kib(records):
            source = self.folder / f"long{records}.csv"
            with open(source, "w") as file:
                file.write(HEADER)
                for number in range(records // 2):
                    address = 16 * (number % 100 + 1)
                    file.write(f"1,{2 * number},allocate,{address:#x},64,0x0\n1,{2 * number + 1},free,{address:#x},64,0x0\n")
            process = subprocess.Popen([COMMAND, "convert", source, "--to", "chrome", "-o", "/dev/null"], env=self.environment(),
                                       stdout=subprocess.DEVNULL)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            self.assertEqual(process.returncode, 0)
            return usage.ru_maxrss
        # A list of the events of the longer one alone would take 6 MiB; fixed buffers are the same for both.
        self.assertLess(peak_kib(100_000) - peak_kib(10_000), 4 << 10)


if __name__ == "__main__":
    unittest.main()
