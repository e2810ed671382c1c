"""Every FILE argument takes every kind of file that it can use, by path, through a link, from a pipe; and says what it found otherwise.

A post-mortem says what the flight file says that it was written from.
"""
import json
import os
import re
import subprocess
import unittest
from collections import Counter

from command_files import Files
from command_histories import history
from command_runner import COMMAND, DATA, HEADER
from expected_refusals import records

CLASSES = ("<1MiB", "1-32MiB", ">32MiB")


def flat(text):
    return " ".join(text.split())


def class_of(size):
    return CLASSES[0] if size < 1 << 20 else CLASSES[1] if size <= 32 << 20 else CLASSES[2]


def live_by_class(path, stop_after):
    """What each class of sizes holds after so many records, if nothing is refused: worked out without headroom."""
    at, held = {}, Counter()
    for number, (action, pointer, size) in enumerate(records(path)):
        if number == stop_after:
            break
        if action == "allocate":
            at.setdefault(pointer, []).append(size)
            held[class_of(size)] += size
        elif action == "free" and at.get(pointer):
            blocks = at[pointer]
            taken = blocks.pop(blocks.index(size) if size in blocks else 0)
            held[class_of(taken)] -= taken
    return held


class Sources(Files):
    def dump_of(self, file, *options):
        path = self.folder / f"{file.stem}{len(list(self.folder.glob('*.json')))}.json"
        done = self.run_command("dump", file, "-o", path, *options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return path

    def refused(self):
        """The flight file of a replay in which requests were refused, whatever was tried."""
        before = set(self.flights.glob("*.flight"))
        done = self.run_command("replay", history("oom_batch"), "--budget", "5GiB", "--policy", "checkpoint", "--hook",
                                "cache:64MiB:1", "--keep", environment=self.environment(HEADROOM_DUMP="off"))
        self.assertEqual(done.returncode, 1, done.stderr)
        (file,) = set(self.flights.glob("*.flight")) - before
        return file


class Diff(Sources):
    def test_two_dumps_of_one_replay(self):
        a, b = (self.dump_of(self.kept("resnet", events)) for events in (4_000, 6_000))
        witness = [live_by_class(history("resnet"), events) for events in (4_000, 6_000)]
        found = self.json_of("diff", a, b, "--json")
        told = {name: {row["tag"]: (row["bytes_a"], row["bytes_b"]) for row in rows} for name, rows in found.items()}
        expected = {name: {} for name in ("grown", "vanished", "appeared", "shrunk")}
        for name in CLASSES:
            before, after = witness[0][name], witness[1][name]
            self.assertTrue(before and after)
            if before != after:
                expected["grown" if after > before else "shrunk"][name] = (before, after)
        self.assertTrue(expected["shrunk"])
        self.assertEqual(told, expected)

    def test_a_dump_and_its_flight_file_hold_the_same(self):
        file = self.kept("gpt2", 5_000)
        for at in ("now", "peak"):
            found = self.json_of("diff", file, self.dump_of(file), "--at", at, "--json")
            self.assertEqual(set(map(len, found.values())), {0}, found)
        history_too = self.json_of("diff", self.dump_of(file), self.write("none.csv", HEADER), "--json")
        self.assertEqual(sum(row["bytes_a"] for row in history_too["vanished"]), sum(live_by_class(history("gpt2"), 5_000).values()))


class Summary(Sources):
    def test_a_dump_has_the_figures_of_its_flight_file(self):
        for file in (self.kept("resnet", 4_000), self.refused()):
            of_flight = self.json_of("summary", file, "--json")
            for options, left_out in (((), ()), (("--no-events",), ("events_read", "events_lost"))):
                of_dump = self.json_of("summary", self.dump_of(file, *options), "--json")
                self.assertEqual(list(of_dump), list(of_flight))
                for name in of_flight:
                    # The lifetime of the dead ends with the last clock or event that is known.
                    if name != "elapsed_seconds":
                        self.assertEqual(of_dump[name], None if name in left_out else of_flight[name], name)

    def test_the_text_says_that_it_was_written_down(self):
        text = self.run_command("summary", self.dump_of(self.kept("resnet", 4_000), "--no-events")).stdout
        self.assertIn("exited when this was written", text)
        self.assertIn("events: ", text)
        self.assertIn("left out of this file", text)

    def test_a_history_needs_one_reading(self):
        by_path = self.run_command("summary", history("resnet")).stdout
        with open(history("resnet"), "rb") as file:
            piped = self.run_with_bytes("summary", "-", content=file.read())
        self.assertEqual(piped.stdout, by_path.replace(str(history("resnet")), "standard input"))
        for name in CLASSES:
            self.assertIn(name, piped.stdout)


class Figures(Sources):
    """Of a dump that was changed by hand: what its commands make of it."""
    def changed(self, change):
        dump = json.loads(self.dump_of(self.refused(), "--no-events").read_text())
        change(dump)
        return self.write("changed.json", json.dumps(dump))

    def test_refused_frees_are_told(self):
        def misuse(dump):
            dump["ledgers"][0]["free_failures"] = [{"kind": "double_free", "count": 2}, {"kind": "driver", "count": 1},
                                                   {"kind": "unknown_pointer", "count": 1}]
        path = self.changed(misuse)
        summary = self.run_command("summary", path).stdout
        self.assertRegex(summary, r"refused frees +2 double_free\n +refused frees +1 unknown_pointer\n")
        self.assertIn("Three frees were refused: 2 double_free and 1 unknown_pointer.", flat(self.run_command("explain", path).stdout))

    def test_a_clock_that_was_set_makes_nobody_older(self):
        def set_clock(dump):
            dump["process"]["liveness"] = "living"
            dump["written"]["realtime_ns"] = str(int(dump["written"]["realtime_ns"]) + 864_000 * 10**9)
            dump["written"]["monotonic_ns"] = dump["clock"]["syncs"][0][1] + 90 * 10**9
        text = flat(self.run_command("explain", self.changed(set_clock)).stdout)
        self.assertIn("1 min 30 s into its life", text)

    def test_a_failure_without_its_record_is_dated_by_the_first_of_its_kind(self):
        def forget(dump):
            del dump["failure"]["ticks"]
        path = self.changed(forget)
        as_it_was = flat(self.run_command("explain", self.dump_of(self.refused(), "--no-events")).stdout)
        self.assertRegex(as_it_was, r"At \d\d:\d\d:\d\d UTC it asked")
        self.assertNotRegex(flat(self.run_command("explain", path).stdout), r"At \d{4}-")


class Truncated(Sources):
    def test_it_is_said_wherever_a_cut_dump_is_read(self):
        whole = self.dump_of(self.refused())
        content = whole.read_bytes()
        cut = self.write("cut.json", content[:content.index(b'"live":')])
        for arguments in (("summary", cut), ("summary", cut, "--json"), ("explain", cut), ("diff", whole, cut)):
            done = self.run_command(*arguments)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(f"{cut}: truncated", done.stderr)
        # The books come before the lists.
        self.assertEqual(self.json_of("summary", cut, "--json")["peak_bytes"], self.json_of("summary", whole, "--json")["peak_bytes"])
        nobody = self.write("nobody.json", content[:60])
        for subcommand in ("summary", "explain", "check"):
            done = self.run_command(subcommand, nobody)
            self.assertEqual((done.returncode, done.stdout), (3, ""), subcommand)
            self.assertIn("truncated before it says which process it is of", done.stderr)


class Check(Sources):
    def test_dumps(self):
        whole = self.dump_of(self.refused())
        sound = self.run_command("check", whole)
        self.assertEqual(sound.returncode, 0, sound.stdout + sound.stderr)
        self.assertIn("sound", sound.stdout)
        content = whole.read_bytes()
        cut = self.run_command("check", self.write("cut.json", content[:len(content) // 2]))
        self.assertEqual(cut.returncode, 1, cut.stdout + cut.stderr)
        self.assertIn("truncated", cut.stdout)
        # A figure that does not agree with the others, and one that cannot be.
        dump = json.loads(content)
        dump["ledgers"][0]["allocated_bytes"] += 1
        wrong = self.run_command("check", self.write("wrong.json", json.dumps(dump)))
        self.assertEqual(wrong.returncode, 1, wrong.stdout)
        self.assertIn("tags hold", wrong.stdout)
        dump["ledgers"][0]["allocated_bytes"] = -1
        broken = self.run_command("check", self.write("broken.json", json.dumps(dump)))
        self.assertEqual((broken.returncode, broken.stdout), (3, ""))
        self.assertIn("allocated_bytes", broken.stderr)

    def test_what_is_json_and_no_post_mortem(self):
        for subcommand in ("check", "summary", "explain"):
            done = self.run_command(subcommand, self.write("other.json", '{"schema": {"name": "other"}}'))
            self.assertEqual((done.returncode, done.stdout), (3, ""), subcommand)
            self.assertIn("expected", done.stderr)
        done = self.run_command("replay", self.dump_of(self.kept("resnet", 100)))
        self.assertEqual(done.returncode, 3)
        self.assertIn("as a post-mortem begins; expected a recorded history", done.stderr)


class Explain(Sources):
    def failure_told_by(self, *arguments, **options):
        done = self.run_command("explain", *arguments, **options)
        self.assertEqual((done.returncode, done.stderr), (0, ""), arguments)
        return flat(done.stdout)

    def test_a_dump_tells_what_its_flight_file_tells(self):
        file = self.refused()
        of_flight = self.failure_told_by(file)
        for words in ("asked for 24.5 MiB", "'cache'", "checkpoint"):
            self.assertIn(words, of_flight)
        of_dump = self.failure_told_by(self.dump_of(file))
        self.assertEqual(of_dump, of_flight)
        # Without events the failure is told from the dump's own account of it.
        of_state = self.failure_told_by(self.dump_of(file, "--no-events"))
        request = re.compile(r"asked for .*? of its manager 'replay' said no: .*? were missing")
        self.assertEqual(request.search(of_state).group(), request.search(of_flight).group())
        for words in ("'cache'", "checkpoint", "held"):
            self.assertIn(words, of_state)

    def test_through_pipes_and_links(self):
        file = self.refused()
        dump = self.dump_of(file)
        for path in (file, dump, history("oom_batch")):
            by_path = self.failure_told_by(path)
            link = self.folder / f"link-to-{path.name}"
            link.symlink_to(path)
            self.assertEqual(self.failure_told_by(link).replace(str(link), str(path)), by_path)
            with open(path, "rb") as content:
                piped = self.run_with_bytes("explain", "-", content=content.read())
            self.assertEqual((piped.returncode, piped.stderr), (0, ""), path)
            self.assertEqual(flat(piped.stdout).replace("standard input", str(path)), by_path)


class Output(Sources):
    def test_half_an_answer_is_no_answer(self):
        """A disk that is full: it is said, and the exit status is not 0."""
        file = self.refused()
        dump = self.dump_of(file)
        for arguments in (("summary", file), ("summary", dump, "--json"), ("fit", history("resnet"), "--json"), ("diff", file, dump, "--json"),
                          ("check", dump), ("explain", dump), ("ps", "--json"), ("devices",), ("top", "--once"), ("--help",),
                          ("--version",), ("replay", history("resnet"), "--json"), ("dump", file, "-o", "-")):
            with self.subTest(arguments=arguments), open("/dev/full", "w") as full:
                done = subprocess.run([COMMAND, *map(str, arguments)], env=self.environment(), stdout=full, stderr=subprocess.PIPE,
                                      text=True, timeout=300)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(os.strerror(28), done.stderr)


if __name__ == "__main__":
    unittest.main()
