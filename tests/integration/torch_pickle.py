"""`headroom convert --to torch`: a memory snapshot that Python's pickle reads, that keeps the rules which PyTorch's tools rely on, and
that shows what the books say."""
import itertools
import json
import math
import os
import pickle
import random
import unittest
from collections import Counter
from dataclasses import dataclass, field

from command_runner import DATA, HEADER, CommandTest

MANY_MANAGERS = os.environ.get("HEADROOM_MANY_MANAGERS")
HISTORIES = ("resnet", "gpt2", "vit_threads", "oom_batch")
ENTRY = {"action", "size", "stream", "time_us", "user_metadata", "frames"}
KEYS = {
    "segment_alloc": ENTRY | {"addr"},
    "segment_free": ENTRY | {"addr"},
    "alloc": ENTRY | {"addr", "category"},
    "free_requested": ENTRY | {"addr", "category"},
    "free_completed": ENTRY | {"addr", "category"},
    "oom": ENTRY | {"device_free", "category"},
    "snapshot": {"action", "addr", "size", "stream", "time_us", "frames", "category"},
}
SEGMENT = {"device", "address", "total_size", "allocated_size", "active_size", "requested_size", "stream", "segment_type",
           "segment_pool_id", "is_expandable", "user_metadata", "frames", "blocks"}
BLOCK = {"address", "size", "requested_size", "state", "user_metadata", "frames", "category"}


class Plain(pickle.Unpickler):
    """Runs nothing: a pickle that names a global is refused."""
    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")


def load(path):
    with open(path, "rb") as file:
        snapshot = Plain(file).load()
        assert file.read() == b""
    return snapshot


@dataclass
class Shown:
    """What a snapshot adds up to, as memory_viz draws it."""
    allocations: int = 0
    frees: int = 0
    from_before: int = 0
    ooms: list = field(default_factory=list)
    peak: int = 0
    live: int = 0
    blocks: int = 0
    categories: Counter = field(default_factory=Counter)  # live bytes by (manager, category)


class TorchPickle(CommandTest):
    def convert(self, path, *options, status=0):
        output = self.folder / f"{path.name}.pickle"
        done = self.run_command("convert", path, "--to", "torch", "-o", output, *options)
        self.assertEqual(done.returncode, status, done.stderr)
        return output

    def snapshot(self, path, *options):
        return load(self.convert(path, *options))

    def flight(self):
        (file,) = self.flights.glob("*.flight")
        return file

    def killed(self, pairs):
        process = self.start_program(MANY_MANAGERS, pairs, says="ready")
        self.kill(process)
        return self.flight()

    # ── the rules ──

    def check(self, snapshot):
        """Every rule that a reader relies on; what all devices show together."""
        self.assertEqual(set(snapshot), {"device_traces", "segments", "external_annotations", "allocator_settings", "headroom"})
        self.assertEqual(snapshot["allocator_settings"], {})
        at_end = {device: {} for device in range(len(snapshot["device_traces"]))}
        for segment in snapshot["segments"]:
            self.check_segment(segment)
            at_end[segment["device"]][segment["address"]] = segment
        self.check_order(snapshot["segments"])
        self.check_annotations(snapshot["external_annotations"], len(at_end))
        shown = Shown()
        sums = []
        for device, trace in enumerate(snapshot["device_traces"]):
            sums.append(self.check_trace(trace, dict(at_end[device]), shown))
        for segment in snapshot["segments"]:
            for block in segment["blocks"]:
                shown.live += block["requested_size"]
                shown.blocks += 1
                shown.categories[block["user_metadata"], block["category"]] += block["requested_size"]
        shown.peak = self.peak_of(sums)
        self.assertEqual(sum(entry["action"] == "snapshot" for trace in snapshot["device_traces"] for entry in trace),
                         sum(trace != [] for trace in snapshot["device_traces"]))
        return shown

    @staticmethod
    def peak_of(sums):
        """Of one device's: several are not in step."""
        return max(itertools.chain.from_iterable(sums), default=0)

    def check_order(self, segments):
        places = [(segment["device"], segment["address"]) for segment in segments]
        self.assertEqual(places, sorted(places))
        for one, next_one in zip(segments, segments[1:]):
            if one["device"] == next_one["device"]:
                self.assertLessEqual(one["address"] + one["total_size"], next_one["address"], "segments overlap")

    def check_segment(self, segment):
        self.assertEqual(set(segment), SEGMENT)
        self.assertEqual(segment["segment_pool_id"], (0, 0))
        self.assertIs(segment["is_expandable"], False)
        self.assertEqual(segment["segment_type"], "small" if segment["total_size"] <= 1 << 20 else "large")
        address = segment["address"]
        for block in segment["blocks"]:
            self.assertEqual(set(block), BLOCK)
            self.assertEqual(block["address"], address, "blocks tile their segment")
            self.assertEqual(block["state"], "active_allocated")
            self.assertGreater(block["size"], 0)
            self.assertGreaterEqual(block["size"], block["requested_size"])
            self.check_frames(block["frames"])
            address += block["size"]
        self.assertEqual(address, segment["address"] + segment["total_size"])
        for key, of_block in (("allocated_size", "size"), ("active_size", "size"), ("requested_size", "requested_size")):
            self.assertEqual(segment[key], sum(block[of_block] for block in segment["blocks"]))

    def check_frames(self, frames):
        for frame in frames:
            self.assertEqual(set(frame), {"filename", "line", "name"})
            self.assertEqual(list(map(type, (frame["filename"], frame["line"], frame["name"]))), [str, int, str])

    def check_annotations(self, annotations, devices):
        open_spans = Counter()
        for span in annotations:
            self.assertEqual(set(span), {"stage", "name", "device", "time_us"})
            self.assertLess(span["device"], devices)
            key = span["device"], span["name"]
            open_spans[key] += {"START": 1, "END": -1}[span["stage"]]
            self.assertGreaterEqual(open_spans[key], 0)
        self.assertEqual(set(open_spans.values()) - {0}, set())

    def check_trace(self, trace, at_end, shown):
        """Entries of one device in order; the live bytes before the first one and after each."""
        blocks, segments, before, changes = {}, {}, 0, []
        time = 0
        steps = iter(trace)
        for entry in steps:
            self.assertEqual(set(entry), KEYS[entry["action"]])
            self.check_frames(entry["frames"])
            self.assertGreaterEqual(entry["time_us"], time)
            time = entry["time_us"]
            action, size, address = entry["action"], entry["size"], entry.get("addr")
            if action == "segment_alloc":
                self.assertNotIn(address, segments)
                segments[address] = size
            elif action == "alloc":
                self.assertNotIn(address, blocks, "an address that is live is not given out again")
                self.assertEqual(segments[address], size)
                blocks[address] = entry
                shown.allocations += 1
                changes.append(size)
            elif action == "free_requested":
                completed, gone = next(steps), next(steps)
                for action, later in zip(("free_completed", "segment_free"), (completed, gone)):
                    self.assertEqual(later["action"], action)
                    self.assertEqual(set(later), KEYS[action])
                    for key in ("addr", "size", "time_us", "stream"):
                        self.assertEqual(later[key], entry[key])
                allocated = blocks.pop(address, None)
                segments.pop(address, None)
                if allocated is None:
                    before += size
                    shown.from_before += 1
                else:
                    for key in ("size", "category", "user_metadata"):
                        self.assertEqual(entry[key], allocated[key])
                shown.frees += 1
                changes.append(-size)
            elif action == "oom":
                self.assertIsInstance(entry["device_free"], int)
                shown.ooms.append((entry["user_metadata"], size))
            else:
                self.assertEqual(action, "snapshot")
                self.assertIs(entry, trace[-1])
                self.assertEqual(entry["category"], "unknown")
        for address, segment in at_end.items():
            allocated = blocks.pop(address, None)
            if allocated is None:
                before += segment["requested_size"]
                shown.from_before += 1
            else:
                self.assertEqual(segment["requested_size"], allocated["size"])
                self.assertEqual(segment["blocks"][0]["category"], allocated["category"])
        self.assertEqual(blocks, {}, "what was allocated and not freed is in a segment")
        return list(itertools.accumulate(changes, initial=before))

    def check_against_summary(self, path, figures):
        shown = self.check(self.snapshot(path))
        self.assertEqual(shown.live, figures["live_bytes"])
        self.assertEqual(shown.blocks, figures["live_allocations"])
        self.assertEqual(shown.peak, figures["peak_bytes"])
        return shown

    # ── histories ──

    def check_history(self, path):
        figures = self.json_of("summary", path, "--json")
        shown = self.check_against_summary(path, figures)
        self.assertEqual(shown.allocations, figures["allocations"])
        self.assertEqual(shown.frees, figures["frees"])
        self.assertEqual(len(shown.ooms), figures["trace_failures"])
        self.assertEqual(shown.from_before, 0)
        return shown, figures

    def test_recorded_histories(self):
        for name in HISTORIES:
            with self.subTest(name):
                self.check_history(DATA / f"{name}.csv.xz")

    def test_ten_lines_by_hand(self):
        path = self.write("ten.csv", HEADER + "1,10,allocate,0x1000,100,7\n"
                                              "1,11,allocate,0x2000,200,0\n"
                                              "2,12,allocate,0x1000,100,7\n"  # before the free that comes next was written down
                                              "1,13,free,0x1000,100,7\n"
                                              "2,14,free,0x9000,50,0\n"       # of nothing
                                              "2,15,allocate failure,(nil),5000,0\n"
                                              "2,16,free,0x2000,1,0\n")       # another size than was allocated
        snapshot = self.snapshot(path)
        shown = self.check(snapshot)
        (trace,) = snapshot["device_traces"]
        told = [(entry["action"], entry.get("addr"), entry["size"], entry["stream"], entry["time_us"]) for entry in trace
                if entry["action"] in ("alloc", "free_completed", "oom")]
        elsewhere = 1 << 52
        self.assertEqual(told, [("alloc", 0x1000, 100, 7, 10), ("alloc", 0x2000, 200, 0, 11), ("alloc", elsewhere, 100, 7, 12),
                                ("free_completed", 0x1000, 100, 7, 13), ("oom", None, 5000, 0, 15),
                                ("free_completed", 0x2000, 200, 0, 16)])
        self.assertEqual((shown.peak, shown.live, shown.blocks), (400, 100, 1))
        self.assertEqual(snapshot["headroom"]["moved_blocks"], 1)
        self.assertEqual(trace[0]["frames"], [])
        self.assertEqual({entry.get("category") for entry in trace}, {None, "untagged", "unknown"})

    def test_a_hundred_thousand_records(self):
        """Logs as they are: threads that overtake one another, frees of nothing, other sizes, failures."""
        source = random.Random(1)
        live, lines = [], [HEADER]
        for i in range(100_000):
            chance = source.random()
            if chance < 0.005:
                lines.append(f"{i % 5},{i},allocate failure,(nil),{source.randrange(1 << 33)},0\n")
            elif chance < 0.01:
                lines.append(f"{i % 5},{i},free,{0x7000_0000_0000 + 256 * i:#x},256,0\n")
            elif chance < 0.51 or not live:
                address, size = 0x7F00_0000_0000 + 256 * source.randrange(20_000), source.randrange(1, 5_000)
                live.append((address, size))
                lines.append(f"{i % 5},{i},allocate,{address:#x},{size},{i % 3}\n")
            else:
                address, size = live.pop(source.randrange(len(live)))
                lines.append(f"{i % 5},{i},free,{address:#x},{size + (chance > 0.99)},{i % 3}\n")
        path = self.write("many.csv", "".join(lines))
        shown, figures = self.check_history(path)
        self.assertGreater(figures["unmatched_frees"], 400)
        self.assertGreater(shown.allocations, 45_000)

    def test_spans_of_a_snapshot_stay_as_they_are(self):
        def entry(action, address, time):
            return {"action": action, "addr": address, "size": 512, "stream": 0, "time_us": time, "frames": []}

        def annotation(stage, name, device, time):
            return {"stage": stage, "name": name, "device": device, "time_us": time}
        spans = [annotation("START", "step", 1, 1_200), annotation("START", "step", 0, 1_500), annotation("START", "inner", 1, 1_600),
                 annotation("END", "inner", 1, 1_700), annotation("END", "step", 0, 1_800), annotation("END", "step", 1, 1_900)]
        traces = [[entry("alloc", 0x1000, 1_000), entry("free_completed", 0x1000, 2_000)] for _ in range(2)]
        path = self.write("two.snapshot", pickle.dumps({"segments": [], "device_traces": traces, "external_annotations": spans}))
        snapshot = self.snapshot(path)
        self.check(snapshot)
        self.assertEqual(snapshot["external_annotations"], spans)
        self.assertEqual(self.snapshot(path, "--trace-device", "1")["external_annotations"],
                         [span for span in spans if span["device"] == 1])

    def test_a_history_of_nothing(self):
        snapshot = self.snapshot(self.write("none.csv", HEADER))
        self.assertEqual(snapshot["device_traces"], [[]])
        self.assertEqual(snapshot["segments"], [])

    # ── programs ──

    def test_a_replay_under_a_budget(self):
        self.json_of("replay", DATA / "oom_batch.csv.xz", "--stop-after", 1_200, "--budget", "820MiB", "--hook", "cache:64MiB:1",
                     "--keep", "--json")
        flight = self.flight()
        summary = self.json_of("summary", flight, "--json")
        snapshot = self.snapshot(flight)
        shown = self.check(snapshot)
        self.assertEqual(shown.live, summary["live_bytes"])
        self.assertEqual(summary["events_lost"], 0)
        self.assertEqual(shown.allocations, summary["allocations"])
        self.assertEqual(shown.frees, summary["frees"])
        self.assertEqual(shown.peak, summary["peak_bytes"])
        self.assertEqual(len(shown.ooms), summary["refused"])
        self.assertGreater(summary["refused"], 0)
        spans = Counter((span["name"], span["stage"]) for span in snapshot["external_annotations"])
        self.assertGreater(spans["cache", "START"], 0)
        self.assertEqual(spans["cache", "START"], spans["cache", "END"])
        frames = [frame for entry in snapshot["device_traces"][0] for frame in entry["frames"]]
        self.assertTrue(frames)
        for frame in frames:  # "folder/file.cpp:12 function"
            self.assertRegex(frame["filename"], r"^[a-z_]+/[a-z_]+\.[ch]pp$")
            self.assertGreater(frame["line"], 0)
            self.assertTrue(frame["name"])

    def of_many_managers(self, path):
        """A snapshot of the program with several managers against the books of its flight file or dump."""
        summary = self.json_of("summary", path, "--json")
        snapshot = self.snapshot(path)
        shown = self.check(snapshot)
        self.assertEqual(shown.live, summary["live_bytes"])
        self.assertEqual(shown.ooms, [("cache", 512 << 10)] * summary["refused"])
        self.assertEqual([(device["index"], device["managers"]) for device in snapshot["headroom"]["devices"]],
                         [(0, ["weights", "cache"]), (2, ['spill "2"'])])
        self.assertEqual(len(snapshot["device_traces"]), 3)
        self.assertEqual(snapshot["device_traces"][1], [])
        spans = [(span["name"], span["stage"], span["device"]) for span in snapshot["external_annotations"]]
        self.assertEqual(spans, [("nothing to give", "START", 0), ("nothing to give", "END", 0)])
        # What the program holds: worked out from its source.
        held = Counter({("weights", "held"): 100, ("cache", "held"): 100, ('spill "2"', "held"): 100, ('spill "2"', "untagged"): 1024})
        for tag in ("plain", "two\nlines", '"quoted" \\x5cx41 \\', "nul", "no \N{REPLACEMENT CHARACTER} utf", "semi;colon:1", "größe",
                    "untagged"):
            held["weights", tag] += 3072
        self.assertEqual(shown.categories, held)
        return shown, summary

    @unittest.skipUnless(MANY_MANAGERS, "HEADROOM_MANY_MANAGERS names no program")
    def test_a_killed_program_with_several_managers(self):
        shown, summary = self.of_many_managers(self.killed(200))
        self.assertEqual(summary["events_lost"], 0)
        self.assertEqual((shown.allocations, shown.frees), (summary["allocations"], summary["frees"]))
        self.assertEqual(shown.from_before, 0)

    @unittest.skipUnless(MANY_MANAGERS, "HEADROOM_MANY_MANAGERS names no program")
    def test_records_that_were_overwritten(self):
        shown, summary = self.of_many_managers(self.killed(40_000))
        self.assertGreater(summary["events_lost"], 0)
        self.assertGreater(shown.from_before, 0)
        self.assertLess(shown.allocations, summary["allocations"])

    @unittest.skipUnless(MANY_MANAGERS, "HEADROOM_MANY_MANAGERS names no program")
    def test_a_dump(self):
        flight = self.killed(200)
        dump, without_events = self.folder / "dump.json", self.folder / "books.json"
        self.assertEqual(self.run_command("dump", flight, "-o", dump).returncode, 0)
        self.assertEqual(self.run_command("dump", flight, "--no-events", "-o", without_events).returncode, 0)
        of_flight, of_dump = self.snapshot(flight), self.snapshot(dump)
        self.of_many_managers(dump)
        for part in ("device_traces", "segments", "external_annotations"):
            self.assertEqual(of_dump[part], of_flight[part], part)
        shown = self.check(self.snapshot(without_events))
        self.assertEqual(shown.live, self.check(of_flight).live)
        self.assertEqual(shown.allocations, 0)

    @unittest.skipUnless(MANY_MANAGERS, "HEADROOM_MANY_MANAGERS names no program")
    def test_one_manager_alone(self):
        snapshot = self.snapshot(self.killed(200), "--manager", "cache")
        shown = self.check(snapshot)
        self.assertEqual(shown.categories, {("cache", "held"): 100})
        self.assertEqual(len(snapshot["device_traces"]), 1)

    # ── back again ──

    def test_back_again(self):
        """A snapshot is a history that `headroom` reads itself, with the same figures."""
        if self.run_command("summary", self.convert(self.write("none.csv", HEADER + "1,1,allocate,0x100,1,0\n"))).returncode != 0:
            self.skipTest("this build reads no snapshots")
        for name in HISTORIES:
            with self.subTest(name):
                path = DATA / f"{name}.csv.xz"
                pickled = self.convert(path)
                for command in ("summary", "replay"):
                    of_history, of_pickle = (self.json_of(command, file, "--json") for file in (path, pickled))
                    for figure in ("peak_bytes", "live_bytes", "live_allocations", "allocations", "frees", "trace_failures"):
                        self.assertEqual(of_pickle[figure], of_history[figure], (command, figure))


if __name__ == "__main__":
    unittest.main()
