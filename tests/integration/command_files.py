"""diff and check: flight files and histories, told apart by content alone; what is wrong with them, and what changed."""
import os
import shutil
import struct
import subprocess
import threading
import unittest
from pathlib import Path

from command_histories import RECORDED, history
from command_runner import COMMAND, HEADER, CommandTest
from expected_refusals import simulate

MIB = 1 << 20


class Files(CommandTest):
    def kept(self, name, records):
        """The flight file of a replay that stopped after so many records."""
        before = set(self.flights.glob("*.flight"))
        done = self.run_command("replay", history(name), "--stop-after", records, "--keep", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        (file,) = set(self.flights.glob("*.flight")) - before
        return file

    def run_with_bytes(self, *arguments, content):
        """Standard input is a pipe with these bytes."""
        reading, writing = os.pipe()

        def write():
            try:
                with os.fdopen(writing, "wb") as pipe:
                    pipe.write(content)
            except BrokenPipeError:
                pass
        writer = threading.Thread(target=write)
        writer.start()
        try:
            return subprocess.run([COMMAND, *map(str, arguments)], env=self.environment(), stdin=reading, capture_output=True,
                                  timeout=300, text=True)
        finally:
            os.close(reading)
            writer.join()


class Numbers(Files):
    def test_a_number_in_two_folders_names_its_newest_run(self):
        # What processes look through in turn where nobody chose a folder.
        shared, own = Path(f"/dev/shm/headroom-{os.geteuid()}"), self.folder / "runtime/headroom"
        own.mkdir(mode=0o700, parents=True)
        if not shared.exists():
            shared.mkdir(mode=0o700)
        pid = 900_000_000 + os.getpid()  # of no process
        name = f"headroom.{pid}.{pid:016x}.flight"
        self.addCleanup((shared / name).unlink, missing_ok=True)
        files = {}
        for folder, records in ((shared, 4_000), (own, 6_000)):
            files[records] = shutil.move(self.kept("resnet", records), folder / name)
        environment = self.environment(XDG_RUNTIME_DIR=str(own.parent))
        del environment["HEADROOM_DIR"]
        for newest, older in ((4_000, 6_000), (6_000, 4_000)):
            os.utime(files[older], (1_000_000_000, 1_000_000_000))
            os.utime(files[newest], (1_000_000_060, 1_000_000_060))
            dump = self.json_of("dump", pid, "-o", "-", "--no-events", environment=environment)
            self.assertEqual(dump["live"]["bytes"], simulate(history("resnet"), stop_after=newest)["live_bytes"])


class Diff(Files):
    def test_two_moments_of_one_replay(self):
        # What each class of sizes holds at both moments, by the witness's rules.
        a, b = self.kept("resnet", 4_000), self.kept("resnet", 6_000)
        found = self.json_of("diff", a, b, "--json")
        self.assertEqual(list(found), ["grown", "vanished", "appeared", "shrunk"])
        for rows in found.values():
            for row in rows:
                self.assertEqual(list(row), ["tag", "site", "bytes_a", "bytes_b"])
                self.assertIn("replay_player.hpp", row["site"])
        back = self.json_of("diff", b, a, "--json")
        text = self.run_command("diff", a, b).stdout
        for records in (4_000, 6_000):
            self.assertIn(f"{simulate(history('resnet'), stop_after=records)['live_bytes']:,} B", text)
        # What grew one way shrank the other: between both, every class that changed is told.
        changed = {row["tag"] for rows in (*found.values(), *back.values()) for row in rows}
        self.assertEqual(changed, {"<1MiB", "1-32MiB", ">32MiB"})

    def test_grown_vanished_and_appeared_by_hand(self):
        a = self.write("a.csv", HEADER + f"1,1,allocate,0xa,100,0\n2,2,allocate,0xb,{2 * MIB},0\n3,3,allocate,0xc,5,0\n")
        b = self.write("b.csv", HEADER + f"1,1,allocate,0xa,160,0\n4,2,allocate,0xd,{MIB},0\n3,3,allocate,0xc,5,0\n")
        self.assertEqual(self.json_of("diff", a, b, "--tag", "thread", "--json"), {
            "grown": [{"tag": "thread 1", "site": None, "bytes_a": 100, "bytes_b": 160}],
            "vanished": [{"tag": "thread 2", "site": None, "bytes_a": 2 * MIB, "bytes_b": 0}],
            "appeared": [{"tag": "thread 4", "site": None, "bytes_a": 0, "bytes_b": MIB}],
            "shrunk": []})
        self.assertEqual(self.json_of("diff", a, b, "--json"), {
            "grown": [{"tag": "<1MiB", "site": None, "bytes_a": 105, "bytes_b": 165}], "vanished": [], "appeared": [],
            "shrunk": [{"tag": "1-32MiB", "site": None, "bytes_a": 2 * MIB, "bytes_b": MIB}]})
        text = self.run_command("diff", a, b)
        self.assertEqual(text.returncode, 0)
        self.assertIn("shrunk", text.stdout)  # 1-32MiB: 2 MiB, then 1 MiB
        self.assertIn("nobody holds more or less", self.run_command("diff", a, a).stdout)

    def test_at_the_peak_flight_files_and_histories_compare(self):
        file = self.kept("gpt2", 12_352)
        self.assertEqual(self.json_of("diff", history("gpt2"), file, "--at", "peak", "--json"),
                         {"grown": [], "vanished": [], "appeared": [], "shrunk": []})
        text = self.run_command("diff", history("gpt2"), file, "--at", "peak").stdout
        self.assertIn("(10,579,622,600 B) in", text)
        self.assertIn("nobody holds more or less", text)

    def test_bad_input(self):
        good = self.write("a.csv", HEADER)
        for arguments, status, says in ((["diff", good], 2, "B"), (["diff", "-", "-"], 2, "once at most"),
                                        (["diff", good, good, "--at", "noon"], 2, "now or peak"),
                                        (["diff", good, good, "--tag", "x"], 2, "size or thread or stream or recorded or none"),
                                        (["diff", good, self.folder / "missing"], 3, "No such file"),
                                        (["diff", self.write("x", "hello"), good], 3, "hello")):
            done = self.run_command(*arguments)
            self.assertEqual(done.returncode, status, done.stderr)
            self.assertEqual(done.stdout, "")
            self.assertIn(says, done.stderr)


class Check(Files):
    def test_sound_files_of_both_kinds(self):
        for name in RECORDED:
            done = self.run_command("check", history(name))
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertIn("recorded history: sound", done.stdout)
        file = self.kept("vit_threads", 8_000)
        renamed = file.rename(self.folder / "looks-like.csv")
        for done in (self.run_command("check", renamed), self.run_with_bytes("check", "-", content=renamed.read_bytes())):
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertIn("flight file of headroom", done.stdout)
            self.assertIn("sound", done.stdout)

    def test_the_living_and_the_killed_are_sound(self):
        process = self.start_command("replay", history("vit_threads"), "--loop", "forever", "--listen", "127.0.0.1:0")
        self.wait_for(process, "serving")
        file = next(self.flights.glob("*.flight"))
        for _ in range(5):
            done = self.run_command("check", file)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertIn("living: sound", done.stdout)
        self.kill(process)
        done = self.run_command("check", file)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("killed: sound", done.stdout)

    def test_findings_of_a_history_have_their_lines(self):
        path = self.write("odd.csv", HEADER + "0,1,free,0xb,7,0\n0,2,allocate,0xa,100,0\n0,3,free,0xa,99,0\n")
        done = self.run_command("check", path)
        self.assertEqual((done.returncode, done.stderr), (1, ""))
        self.assertIn("2 findings", done.stdout)
        self.assertIn(f"{path}:2: free of 0xb (7 bytes) where nothing is live; expected its allocation before it", done.stdout)
        self.assertIn(f"{path}:4: free of 0xa (99 bytes); expected the 100 bytes allocated on line 3", done.stdout)
        many = self.write("many.csv", HEADER + "0,1,free,0xb,7,0\n" * 50)
        self.assertIn("and 30 findings more", self.run_command("check", many).stdout)

    def test_findings_of_a_flight_file_have_their_bytes(self):
        content = bytearray(self.kept("resnet", 4_000).read_bytes())
        struct.pack_into("<Q", content, 2048, 77)  # FileHeader::state
        done = self.run_command("check", self.write("odd.flight", bytes(content)))
        self.assertEqual((done.returncode, done.stderr), (1, ""), done.stdout)
        self.assertIn("1 finding", done.stdout)
        self.assertIn("odd.flight: byte 2,048: the process state is 77; expected at most 4", done.stdout)

    def test_broken_files_say_where_and_what_was_expected(self):
        whole = self.kept("resnet", 4_000).read_bytes()
        cases = [(HEADER + "0,1,grab,0xa,100,0\n", [":2:", "allocate, allocate failure or free"]), ("", ["empty"]),
                 (whole[:100_000], ["cut off"]), (whole[:12], ["its header alone has 4096"]),
                 (whole[:8] + b"\x09" + whole[9:], ["version"])]
        for content, says in cases:
            path = self.write("broken", content)
            done = self.run_command("check", path)
            self.assertEqual((done.returncode, done.stdout), (3, ""), done.stderr)
            for words in (str(path), *says):
                self.assertIn(words, done.stderr)

    def test_a_file_is_what_it_holds_wherever_one_is_taken(self):
        file = self.kept("resnet", 4_000)
        live = simulate(history("resnet"), stop_after=4_000)["live_bytes"]
        self.assertEqual(self.json_of("summary", file.rename(self.folder / "a.csv.xz"), "--json")["live_bytes"], live)
        piped = self.run_with_bytes("summary", "-", "--json", content=(self.folder / "a.csv.xz").read_bytes())
        self.assertEqual(piped.returncode, 0, piped.stderr)
        self.assertIn(f'"live_bytes": {live}', piped.stdout)
        packed = self.run_with_bytes("summary", "/dev/stdin", content=history("resnet").read_bytes())
        self.assertIn("3,192,592,912 B", packed.stdout)
        for command in ("replay", "fit"):
            done = self.run_command(command, self.folder / "a.csv.xz")
            self.assertEqual(done.returncode, 3)
            self.assertIn("a flight file (HRFLGHT1); expected a recorded history", done.stderr)


if __name__ == "__main__":
    unittest.main()
