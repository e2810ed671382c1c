"""Every bad input: a message that names the value, the line and what was expected, and the documented exit status."""
import os
import socket
import unittest

from command_runner import DATA, HEADER, CommandTest

OOM = DATA / "oom_batch.csv.xz"


class BadInput(CommandTest):
    def refused(self, status, *arguments, says, environment=None):
        done = self.run_command(*arguments, environment=environment)
        self.assertEqual(done.returncode, status, f"{arguments}: {done.stdout}{done.stderr}")
        self.assertEqual(done.stdout, "")
        for words in says:
            self.assertIn(words, done.stderr)

    def test_broken_histories(self):
        cases = {
            "cut in the middle of a line": (HEADER + "0,1,allocate,0xa,100,0\n0,2,fr", [":3:", "0,2,fr", "cut off"]),
            "cut after a whole line's worth": (HEADER + "0,1,allocate,0xa,1", [":2:", "cut off"]),
            "unknown action": (HEADER + "0,1,grab,0xa,100,0\n", [":2:", "grab", "allocate, allocate failure or free"]),
            "size that overflows": (HEADER + "0,1,allocate,0xa,18446744073709551616,0\n", [":2:", "2^64"]),
            "negative size": (HEADER + "0,1,allocate,0xa,-1,0\n", [":2:", "-1"]),
            "no known kind": ("hello, world\n", ["no known kind", "hello", "Thread,Time,Action"]),
            "empty": ("", ["empty"]),
            "binary": (bytes(range(256)) * 20, ["expected"]),
            "cut xz": ((DATA / "resnet.csv.xz").read_bytes()[:20_000], ["xz"]),
        }
        for name, (content, says) in cases.items():
            with self.subTest(name):
                path = self.write("broken.csv", content)
                self.refused(3, "replay", path, says=[str(path), *says])
                self.refused(3, "summary", path, says=[str(path), *says])

    def test_missing_files_and_folders(self):
        path = self.folder / "missing.csv"
        for command in ("replay", "summary"):
            self.refused(3, command, path, says=[str(path), "No such file"])
            self.refused(3, command, self.folder, says=[str(self.folder), "directory"])

    def test_broken_flight_files(self):
        path = self.write("broken.flight", b"HRFLGHT1" + bytes(100))
        self.refused(3, "summary", path, says=[str(path)])
        self.write("flights/headroom.1.0123456789abcdef.flight", b"HRFLGHT1" + bytes(100))
        done = self.run_command("ps", "--json")
        self.assertEqual((done.returncode, done.stdout.strip()), (0, "[]"))
        self.assertIn("0123456789abcdef.flight", done.stderr)

    def test_windows_line_ends_and_frees_without_allocation_are_fine(self):
        path = self.write("windows.csv", (HEADER + "0,1,free,0xb,7,0\n0,2,allocate,0xa,100,0\n").replace("\n", "\r\n"))
        for command in ("replay", "summary"):
            figures = self.json_of(command, path, "--json")
            self.assertEqual((figures["unmatched_frees"], figures["frees"], figures["live_bytes"]), (1, 0, 100))

    def test_requests_that_nothing_can_hold_are_refused(self):
        path = self.write("huge.csv", HEADER + "0,1,allocate,0xa,18446744073709551615,0\n0,2,free,0xa,18446744073709551615,0\n")
        figures = self.json_of("replay", path, "--json", status=1)
        self.assertEqual((figures["refused"], figures["peak_bytes"], figures["unmatched_frees"]), (1, 0, 0))

    def test_bad_budgets(self):
        for text in ("0m", "-1", "", "4X", "1e9", "4Gib", "64000MiBGiB", "99999999999G", "20TiB", "50%", "Unlimited"):
            with self.subTest(text):
                self.refused(2, "replay", OOM, f"--budget={text}", says=["--budget", text])
        self.assertEqual(self.json_of("replay", OOM, "--budget", "0", "--json", status=1)["refused"], 1_283)
        half = self.json_of("replay", OOM, "--budget", "50%", "--device-total", "10GiB", "--json", status=1)
        self.assertEqual((half["budget_bytes"], half["refused"]), (5 << 30, 17))

    def test_bad_arguments(self):
        for option, text, expected in (("--device", "gpu", "host or cuda:N"), ("--device", "cuda:x", "host or cuda:N"),
                                       ("--allocator", "async", "only with --device cuda:N"), ("--speed", "0x", "factor above 0"),
                                       ("--speed", "fast", "factor above 0"), ("--stretch", "-1", "such as 30"),
                                       ("--stretch", "0", "above 0"), ("--loop", "0", "from 1 on, or forever"),
                                       ("--loop", "1.5", "whole number"), ("--order", "any", "file or free"),
                                       ("--tag", "site", "size or thread or stream or recorded or none"),
                                       ("--stop-after", "x", "whole number"),
                                       ("--hold", "1y", "such as 30"), ("--seconds", "s", "such as 30"),
                                       ("--bind", "maybe", "warn or fail or next"), ("--device-total", "0m", "0m")):
            with self.subTest(f"{option} {text}"):
                self.refused(2, "replay", OOM, f"{option}={text}", says=[expected])
        self.refused(2, "summary", OOM, "--fail-above", "lots", says=["--fail-above", "lots"])
        for text, expected in (("cache", "NAME:SIZE:PRIORITY"), ("cache:1GiB", "NAME:SIZE:PRIORITY"), (":1GiB:1", "NAME:SIZE:PRIORITY"),
                               ("cache:1XiB:1", "1XiB"), ("cache:1GiB:high", "high"), ("cache:1GiB:1:x", "x"),
                               ("cache:1GiB:1:1:1", "NAME:SIZE:PRIORITY")):
            with self.subTest(text):
                self.refused(2, "replay", OOM, f"--hook={text}", says=["--hook", expected])
        for text in ("nap", "wait", "wait:", "wait:-1", "wait:86400001"):
            with self.subTest(text):
                self.refused(2, "replay", OOM, f"--policy={text}", says=["--policy", text, "wait:MS"])
        self.refused(2, "replay", OOM, "--hook=a:1MiB:1", "--hook=a:1MiB:2", says=["--hook", "'a'", "once"])
        self.refused(2, "replay", OOM, "--budget=1GiB", "--hook=a:2GiB:1", says=["--hook", "over_budget"])
        self.refused(2, "replay", OOM, "--frob", says=["--frob"])
        self.refused(2, "replay", says=["trace"])
        self.refused(2, "frob", says=["frob", "replay"])
        self.refused(2, says=["subcommand"])

    def test_taken_port(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            self.refused(2, "replay", OOM, "--listen", address, "--bind", "fail", says=[address, "in use"])
            done = self.run_command("replay", OOM, "--listen", address, "--json")
            self.assertEqual(done.returncode, 0)
            self.assertIn(address, done.stderr)
            done = self.run_command("replay", OOM, "--listen", address, "--bind", "next", "--json")
            self.assertEqual(done.returncode, 0)
            self.assertIn("serving http://127.0.0.1:", done.stderr)

    def test_flight_folders_that_cannot_be_used_do_not_stop_the_program(self):
        shared = self.folder / "shared"
        shared.mkdir()
        shared.chmod(0o777)
        folders = [self.write("file", "not a folder"), "/proc/nowhere/below", shared]
        if os.geteuid() == 0:
            foreign = self.folder / "foreign"
            foreign.mkdir(mode=0o700)
            os.chown(foreign, 65534, 65534)
            folders.append(foreign)
        for folder in folders:
            with self.subTest(folder):
                done = self.run_command("replay", OOM, "--json", environment=self.environment(HEADROOM_DIR=str(folder)))
                self.assertEqual(done.returncode, 0)
                self.assertIn("5698655552", done.stdout)
                self.assertIn(str(folder), done.stderr)
        self.refused(3, "ps", "--dir", folders[0], says=[str(folders[0])])

    def test_help_and_version(self):
        for arguments in (["--help"], ["replay", "--help"], ["ps", "--help"], ["summary", "--help"]):
            done = self.run_command(*arguments)
            self.assertEqual(done.returncode, 0)
            self.assertIn("Examples:", done.stdout)
            self.assertIn("Exit status:", done.stdout)
        self.assertRegex(self.run_command("--version").stdout, r"^headroom \d+\.\d+\.\d+\n$")


if __name__ == "__main__":
    unittest.main()
