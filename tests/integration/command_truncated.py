"""Flight files that somebody truncates while a command reads them: a sentence and exit status 3, never a signal."""
import fcntl
import os
import pty
import shutil
import subprocess
import threading
import time
import unittest

from command_runner import COMMAND, DATA, PATIENCE, CommandTest

WORDS = "was truncated while it was read"
ONE_PAGE_PIPE = 4096


class Truncated(CommandTest):
    def held(self, name="resnet", records=4_000):
        process = self.start_command("replay", DATA / f"{name}.csv.xz", "--stop-after", records, "--hold", "1h")
        self.wait_for(process, "holding")
        return process

    def flight_of(self, process):
        return next(self.flights.glob(f"*.{process.pid}.*.flight"))

    def test_dump_into_a_pipe_that_waits(self):
        """Its first byte is there, most of the others do not fit into the pipe: the file is cut in the middle of the reading."""
        flight = self.flight_of(self.held())
        ours, theirs = os.pipe()
        fcntl.fcntl(ours, fcntl.F_SETPIPE_SZ, ONE_PAGE_PIPE)
        process = subprocess.Popen([COMMAND, "dump", flight, "-o", "-"], stdout=theirs, stderr=subprocess.PIPE, env=self.environment())
        os.close(theirs)
        try:
            self.assertEqual(os.read(ours, 1), b"{")
            os.truncate(flight, ONE_PAGE_PIPE)
            with os.fdopen(ours, "rb") as rest:
                self.assertGreater(len(rest.read()), ONE_PAGE_PIPE)
            error = process.stderr.read().decode()
            self.assertEqual(process.wait(timeout=PATIENCE), 3, error)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            process.stderr.close()
        self.assertIn(f"{flight}: {WORDS}", error)

    def on_terminal(self, *arguments):
        ours, theirs = pty.openpty()
        process = subprocess.Popen([COMMAND, "top", *map(str, arguments), "--every", "100ms"], stdin=theirs, stdout=theirs,
                                   stderr=theirs, env=self.environment(TERM="xterm"), start_new_session=True)
        os.close(theirs)

        def end():
            if process.poll() is None:
                process.kill()
            process.wait()
            os.close(ours)
        self.addCleanup(end)
        return process, ours

    @staticmethod
    def read_until(terminal, words=None):
        """What appears up to these words, or until the other side is gone."""
        seen = b""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and (words is None or words not in seen):
            try:
                seen += os.read(terminal, 65_536)
            except OSError:
                break
        return seen

    def test_top_of_one_process(self):
        flight = self.flight_of(self.held())
        process, terminal = self.on_terminal(flight)
        self.assertIn(b"q quit", self.read_until(terminal, b"q quit"))
        os.truncate(flight, 8192)
        seen = self.read_until(terminal).decode()
        self.assertEqual(process.wait(timeout=PATIENCE), 3, seen)
        self.assertIn(WORDS, seen)

    def test_top_of_several_goes_on_with_the_others(self):
        kept, cut = self.held(), self.flight_of(self.held("gpt2", 3_000))
        process, terminal = self.on_terminal()
        self.assertIn(b"of 2", self.read_until(terminal, b"of 2"))
        os.truncate(cut, 8192)
        self.assertIn(b"process 1 of 1", self.read_until(terminal, b"process 1 of 1"))
        self.assertIsNone(process.poll())
        os.write(terminal, b"q")
        seen = self.read_until(terminal).decode()
        self.assertEqual(process.wait(timeout=PATIENCE), 3, "not everything that was shown was true")
        self.assertIn(WORDS, seen)
        self.assertIn(str(cut)[:40], seen)
        self.assertIsNone(kept.poll())

    def test_every_command_beside_somebody_who_truncates_again_and_again(self):
        """Whenever it hits: the result, or a sentence with exit status 3. Nothing that is written under its name is made of zeros."""
        process = self.held("oom_batch", 500)
        flight = self.flight_of(process)
        self.kill(process)
        whole = flight.read_bytes()
        stop = threading.Event()

        def truncate_on():
            size = len(whole)
            with open(flight, "r+b") as file:
                turn = 0
                while not stop.is_set():
                    os.ftruncate(file.fileno(), (size * (turn % 5) // 5) & ~4095)
                    stop.wait(0.001 * (turn % 7))
                    os.ftruncate(file.fileno(), size)  # zeros, and then what was there
                    os.pwrite(file.fileno(), whole, 0)
                    stop.wait(0.002 * (turn % 3))
                    turn += 1
        other = self.folder / "other.flight"
        shutil.copy(flight, other)
        truncater = threading.Thread(target=truncate_on)
        truncater.start()
        seen = {}
        try:
            for turn in range(4):
                for arguments in (("ps", "--threads"), ("ps", "--json"), ("top", flight, "--once"), ("explain", flight), ("summary", flight),
                                  ("summary", flight, "--json"), ("check", flight), ("diff", flight, other), ("dump", flight, "-o", "-"),
                                  ("dump", flight, "-o", self.folder / f"dump-{turn}.json"),
                                  ("convert", flight, "--to", "chrome", "-o", self.folder / f"chrome-{turn}.json"),
                                  ("convert", flight, "--to", "json", "-o", "-")):
                    done = self.run_command(*arguments)
                    self.assertIn(done.returncode, (0, 1, 3), f"{arguments}: {done.returncode}: {done.stderr}")
                    if done.returncode == 3:
                        self.assertNotEqual(done.stderr, "", arguments)
                    if WORDS in done.stderr:
                        self.assertEqual(done.returncode, 3, f"{arguments}: {done.stderr}")
                        self.assertFalse((self.folder / f"dump-{turn}.json").exists() and arguments[0] == "dump" and arguments[3] != "-")
                    seen.setdefault((arguments[0], done.returncode, WORDS in done.stderr), 0)
                    seen[(arguments[0], done.returncode, WORDS in done.stderr)] += 1
        finally:
            stop.set()
            truncater.join()
        told = sum(count for (_, _, was_said), count in seen.items() if was_said)
        print(f"\n{sum(seen.values())} commands, {told} of which were hit in the middle, "
              f"{sum(count for (_, code, was_said), count in seen.items() if code == 3 and not was_said)} before it")


if __name__ == "__main__":
    unittest.main()
