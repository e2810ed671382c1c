"""Memory snapshots of PyTorch as histories: real ones with the figures that were worked out without headroom, and broken ones."""
import copy
import gzip
import json
import lzma
import pickle
import struct
import unittest

from command_runner import DATA, KEYS, CommandTest

MIDDLE = DATA / "torch-2026-begins-in-the-middle.pickle.xz"
AT_OOM = DATA / "torch-2023-at-oom.pickle.xz"


def entry(action, addr, size, **more):
    return {"action": action, "addr": addr, "size": size, "stream": 0, "time_us": 1_000_000, "frames": [], **more}


def segment(device, address, blocks):
    """Blocks: (size, requested, state). They tile the segment."""
    made = []
    at = address
    for size, requested, state in blocks:
        made.append({"address": at, "size": size, "requested_size": requested, "state": state, "frames": []})
        at += size
    return {"device": device, "address": address, "total_size": at - address, "stream": 0, "segment_type": "large", "blocks": made}


# Device 0: 1,000 from before, 3,000 more at the peak, 1,000 live at the end. Device 2: 7,000 and never freed.
TWO_DEVICES = {
    "segments": [segment(0, 0x10000, [(1024, 1000, "active_allocated"), (3072, 3000, "inactive")]),
                 segment(2, 0x10000, [(7168, 7000, "active_allocated")])],
    "device_traces": [[entry("alloc", 0x10400, 3000), entry("free_requested", 0x10400, 3000),
                       entry("free_completed", 0x10400, 3000)], [], [entry("alloc", 0x10000, 7000)]],
}


class Snapshots(CommandTest):
    def test_a_history_that_begins_in_the_middle_has_what_was_live_before(self):
        summary = self.json_of("summary", MIDDLE, "--json")
        self.assertEqual(list(summary)[:len(KEYS)], KEYS)
        replayed = self.json_of("replay", MIDDLE, "--json")
        for figures in (summary, replayed):
            self.assertEqual(figures["peak_bytes"], 13_923_997_700)
            self.assertEqual(figures["live_bytes"], 1_373_919_236)
            self.assertEqual(figures["unmatched_frees"], 0)
        self.assertEqual((summary["allocations"], summary["frees"]), (1_721, 1_721))
        # Replayed are the blocks from before too: all that is live at the end, and two that were freed.
        self.assertEqual(replayed["allocations"] - replayed["frees"], replayed["live_allocations"])
        device, = summary["devices"]
        self.assertEqual((device["device"], device["segments"], device["reserved_bytes"]), (0, 216, 14_180_941_824))
        self.assertEqual(device["from_before_bytes"], 1_373_919_236)
        fitted = self.json_of("fit", MIDDLE, "--json", "--points", 4)
        self.assertEqual(fitted["smallest_budget_bytes"], 13_923_997_700)
        refused = self.json_of("replay", MIDDLE, "--budget", 13_923_997_699, "--json", status=1)
        self.assertGreaterEqual(refused["refused"], 1)

    def test_the_state_at_an_out_of_memory(self):
        summary = self.json_of("summary", AT_OOM, "--json")
        device, = summary["devices"]
        self.assertEqual({key: device[key] for key in ("allocated_bytes", "reserved_bytes", "segments", "active_blocks",
                                                       "inactive_blocks")},
                         {"allocated_bytes": 11_840_159_744, "reserved_bytes": 11_844_714_496, "segments": 176,
                          "active_blocks": 460, "inactive_blocks": 3})
        self.assertEqual(summary["live_allocations"], 460)
        done = self.run_command("summary", AT_OOM)
        self.assertEqual(done.returncode, 0, done.stderr)
        for words in ("11,840,159,744", "11,844,714,496", "176 segments", "460 active blocks"):
            self.assertIn(words, done.stdout)

    def test_it_counts_what_pytorch_counted_in_the_same_run(self):
        for name in ("whole", "middle"):
            with self.subTest(name):
                path = DATA / f"torch-2.11-{name}.pickle.xz"
                theirs = json.loads((DATA / f"torch-2.11-{name}.json").read_text())
                ours = self.json_of("summary", path, "--json")
                device, = ours["devices"]
                self.assertEqual(ours["peak_bytes"], theirs["requested_bytes"]["peak"])
                self.assertEqual(ours["live_bytes"], theirs["requested_bytes"]["current"])
                self.assertEqual(ours["live_allocations"], theirs["active"]["current"])
                self.assertEqual(ours["allocations"], theirs["active"]["allocated"])
                self.assertEqual(ours["frees"], theirs["active"]["freed"])
                self.assertEqual(ours["trace_failures"], theirs["num_ooms"])
                self.assertEqual(device["reserved_bytes"], theirs["reserved_bytes"]["current"])
                self.assertEqual(device["allocated_bytes"], theirs["allocated_bytes"]["current"])
                self.assertEqual(device["active_bytes"], theirs["active_bytes"]["current"])
                self.assertEqual(device["segments"], theirs["segment"]["current"])

    def test_plain_packed_and_from_standard_input_are_one(self):
        plain = lzma.decompress(MIDDLE.read_bytes())
        expected = self.json_of("summary", MIDDLE, "--json")
        for name, content in (("plain.csv", plain), ("packed.json", gzip.compress(plain)), ("packed.xz", MIDDLE.read_bytes())):
            with self.subTest(name):
                path = self.write(name, content)
                self.assertEqual(self.json_of("summary", path, "--json"), expected)
                with open(path, "rb") as file:
                    self.assertEqual(self.json_of("summary", "-", "--json", stdin_file=file), expected)
                self.assertEqual(self.json_of("summary", "-", "--json", stdin_bytes=content), expected)

    def test_protocols_2_to_5(self):
        for protocol in range(2, 6):
            with self.subTest(protocol):
                path = self.write(f"{protocol}.pickle", pickle.dumps(TWO_DEVICES, protocol))
                self.assertEqual(self.json_of("summary", path, "--json")["live_bytes"], 8_000)

    def test_several_devices_have_a_budget_each(self):
        path = self.write("two.pickle", pickle.dumps(TWO_DEVICES))
        summary = self.json_of("summary", path, "--json")
        self.assertEqual([(each["device"], each["peak_bytes"], each["live_bytes"]) for each in summary["devices"]],
                         [(0, 4_000, 1_000), (2, 7_000, 7_000)])
        self.assertEqual((summary["peak_bytes"], summary["live_bytes"]), (11_000, 8_000))
        for command in ("replay", "fit"):
            done = self.run_command(command, path)
            self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
            self.assertIn("devices 0, 2, each with a budget of its own; expected --trace-device", done.stderr)
            done = self.run_command(command, path, "--trace-device", "1")
            self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
            self.assertIn("--trace-device", done.stderr)
            self.assertIn("0, 2", done.stderr)
            done = self.run_command(command, path, "--trace-device", "one")
            self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
            self.assertIn("--trace-device 'one'", done.stderr)
        self.assertEqual(self.json_of("replay", path, "--trace-device", "0", "--json")["peak_bytes"], 4_000)
        self.assertEqual(self.json_of("fit", path, "--trace-device", "2", "--json")["smallest_budget_bytes"], 7_000)

    def test_what_was_live_before_may_be_what_a_budget_refuses(self):
        path = self.write("two.pickle", pickle.dumps(TWO_DEVICES))
        done = self.run_command("replay", path, "--trace-device", "0", "--budget", "999")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("first refused, live before the first entry: 1000 B refused", done.stdout)
        done = self.run_command("replay", path, "--trace-device", "0", "--budget", "3999")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("first refused, entry 1: 2.93 KiB (3,000 B) refused", done.stdout)

    def test_tags_are_compared_of_one_device(self):
        path = self.write("two.pickle", pickle.dumps(TWO_DEVICES))
        for options in (("--at", "peak"), ("--tag", "size")):
            done = self.run_command("diff", path, path, *options)
            self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
            self.assertIn("devices 0, 2, and of tags alone one is compared; expected --trace-device", done.stderr)
            done = self.run_command("diff", path, path, *options, "--trace-device", "2")
            self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.run_command("diff", path, path).returncode, 0)

    def test_diff_tells_sites_and_categories(self):
        frames = [{"filename": "model.py", "line": 12, "name": "forward"}]
        a = copy.deepcopy(TWO_DEVICES)
        b = copy.deepcopy(TWO_DEVICES)
        b["device_traces"][2].append(entry("alloc", 0x20000, 500, frames=frames, category="activation"))
        b["segments"].append(segment(2, 0x20000, [(512, 500, "active_allocated")]))
        first, second = self.write("a.pickle", pickle.dumps(a)), self.write("b.pickle", pickle.dumps(b))
        difference = self.json_of("diff", first, second, "--json", "--trace-device", "2")
        self.assertEqual(difference["appeared"], [{"tag": "activation", "site": "model.py:12 forward", "bytes_a": 0, "bytes_b": 500}])
        self.assertEqual((difference["grown"], difference["vanished"]), ([], []))

    def test_explain_counts_time_from_the_first_entry(self):
        done = self.run_command("explain", DATA / "torch-2.11-whole.pickle.xz")
        self.assertEqual(done.returncode, 0, done.stderr)
        text = " ".join(done.stdout.split())
        self.assertIn("over 5.3 s", text)
        self.assertRegex(text, r"\b5\.\d s into the history the program asked for 4 TiB")

    def test_check(self):
        done = self.run_command("check", MIDDLE)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("sound", done.stdout)
        broken = copy.deepcopy(TWO_DEVICES)
        broken["device_traces"][0].append(entry("free_completed", 0x10400, 3000))
        done = self.run_command("check", self.write("double.pickle", pickle.dumps(broken)))
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("entry 4", done.stdout)
        self.assertIn("0x10400", done.stdout)

    def test_check_compares_the_history_with_the_segments(self):
        ghost = copy.deepcopy(TWO_DEVICES)
        ghost["device_traces"][2].append(entry("alloc", 0x20000, 500))  # live at the end, and in no segment
        done = self.run_command("check", self.write("ghost.pickle", pickle.dumps(ghost)))
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("1 finding", done.stdout)
        self.assertIn("device 2: 2 allocations of 7,500 bytes live at the end of the history, 1 active block of 7,000 in the segments",
                      done.stdout)
        strange = copy.deepcopy(TWO_DEVICES)
        strange["device_traces"][0].insert(0, entry("frobnicate", 0x10400, 3000))
        done = self.run_command("check", self.write("strange.pickle", pickle.dumps(strange)))
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("1 entry of a kind that is not known", done.stdout)


class Broken(CommandTest):
    def refused(self, content, *says, name="broken.pickle"):
        path = self.write(name, content)
        for command in (("summary",), ("replay",), ("check",), ("fit",)):
            done = self.run_command(*command, path)
            self.assertEqual((done.returncode, done.stdout), (3, ""), f"{command}: {done.stderr}")
            for words in (str(path), *says):
                self.assertIn(words, done.stderr)

    def test_nothing_is_executed(self):
        class Evil:
            def __reduce__(self):
                return (print, ("executed",))
        self.refused(b"\x80\x02cos\nsystem\n.", "byte 2", "GLOBAL", "os", "system", "executed")
        self.refused(pickle.dumps({"segments": [Evil()]}, 4), "STACK_GLOBAL", "byte ", "expected")
        self.refused(b"\x80\x02}NR.", "byte 4", "REDUCE")

    def test_cycles(self):
        loop = []
        loop.append(loop)
        self.refused(pickle.dumps({"segments": loop, "device_traces": []}), "byte ", "APPEND", "contain themselves")

    def test_lengths_that_nothing_has(self):
        self.refused(b"\x80\x04}\x8d" + struct.pack("<Q", 1 << 63) + b"x.", "byte 3", str(1 << 63), "expected")
        self.refused(b"\x80\x04\x8b" + struct.pack("<i", 2_000_000_000) + b"x.", "byte 2", "expected")

    def test_cut_anywhere(self):
        whole = pickle.dumps(TWO_DEVICES)
        for length in range(1, len(whole), 37):
            with self.subTest(length):
                path = self.write("cut.pickle", whole[:length])
                done = self.run_command("summary", path)
                self.assertEqual((done.returncode, done.stdout), (3, ""), done.stderr)
                self.assertIn("byte ", done.stderr)
                self.assertIn("expected", done.stderr)

    def test_what_is_no_pickle_of_protocols_2_to_5(self):
        self.refused(pickle.dumps(TWO_DEVICES, 0), "byte 0", "protocol 0", "expected")
        self.refused(b"\x80\x06}.", "protocol 6", "byte ", "2 to 5")
        self.refused(b"\x89PNG\r\n\x1a\n" + bytes(50), "byte 0", "expected")
        self.refused(b'{"a": [1, 2]}', "byte ", "expected")

    def test_pickles_of_something_else(self):
        for value, says in (([1, 2], "segment 1"), ({"a": 1}, "segments"), (17, "dict"), ({"segments": {}}, "segments"),
                            ({"segments": [], "device_traces": [[17]]}, "entry 1"),
                            ({"segments": [], "device_traces": [[entry("alloc", "x", 1)]]}, "addr"),
                            ({"segments": [], "device_traces": [[entry("alloc", 1, -1)]]}, "size")):
            with self.subTest(says):
                self.refused(pickle.dumps(value), "byte ", says, "expected")


if __name__ == "__main__":
    unittest.main()
