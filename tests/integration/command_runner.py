"""Runs the `headroom` command for the integration tests: HEADROOM_COMMAND names it. Python's standard library only.

Every test case has a flight folder of its own, and ends its own processes, by the handles that it has on them.
"""
import json
import os
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

COMMAND = os.environ.get("HEADROOM_COMMAND", "headroom")
DATA = Path(__file__).resolve().parent.parent / "data"
HEADER = "Thread,Time,Action,Pointer,Size,Stream\n"
PATIENCE = 240  # seconds until something that should happen at once has failed to happen, on a machine that has no time for it

KEYS = ("allocations frees trace_failures refused unmatched_frees peak_bytes live_bytes live_allocations budget_bytes "
        "claimed_bytes elapsed_seconds events_recorded events_read events_lost loop_frees").split()


class CommandTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="headroom-command-")
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        self.flights = self.folder / "flights"
        self.flights.mkdir(mode=0o700)
        self.dumps = self.folder / "dumps"  # of post-mortems; made by whoever writes one

    def environment(self, **more):
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HEADROOM_")}
        return {**kept, "HEADROOM_DIR": str(self.flights), "HEADROOM_DUMP_DIR": str(self.dumps), **more}

    def run_command(self, *arguments, environment=None, stdin=None, stdin_file=None, stdin_bytes=None):
        """On standard input: a text, an open file, or bytes through a pipe."""
        command = [COMMAND, *map(str, arguments)]
        how = {"env": environment or self.environment(), "capture_output": True, "timeout": 300}
        if stdin_bytes is None:
            return subprocess.run(command, text=True, **how, **({"stdin": stdin_file} if stdin_file else {"input": stdin}))
        done = subprocess.run(command, input=stdin_bytes, **how)
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())

    def json_of(self, *arguments, status=0, **options):
        done = self.run_command(*arguments, **options)
        self.assertEqual(done.returncode, status, f"{arguments}: {done.stdout}{done.stderr}")
        return json.loads(done.stdout)

    def write(self, name, content):
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def start_command(self, *arguments):
        """A process whose stderr is read by wait_for; it is killed when the test ends, if it still runs."""
        error_path = self.folder / f"stderr-{time.monotonic_ns()}"
        with open(error_path, "wb") as error_file:
            process = subprocess.Popen([COMMAND, *map(str, arguments)], env=self.environment(), stdout=subprocess.PIPE,
                                       stderr=error_file, text=True)
        process.error_path = error_path
        self.end_with_test(process)
        return process

    def start_program(self, path, *arguments, says):
        """A test's own program, as soon as it has said on stdout that it is where it should be; it is killed when the test ends."""
        process = subprocess.Popen([path, *map(str, arguments)], env=self.environment(), stdout=subprocess.PIPE,
                                   stdin=subprocess.DEVNULL, text=True)
        self.end_with_test(process)
        self.assertEqual(process.stdout.readline(), f"{says}\n")
        return process

    def end_with_test(self, process):
        def end():
            if process.poll() is None:
                process.kill()
            process.wait()
            process.stdout.close()
        self.addCleanup(end)

    def wait_for(self, process, words):
        """The line of stderr with these words, as soon as it is there."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            for line in process.error_path.read_text().splitlines(keepends=True):
                if words in line and line.endswith("\n"):
                    return line.strip()
            if process.poll() is not None:
                break
            time.sleep(0.02)
        self.fail(f"no '{words}' in: {process.error_path.read_text()}")

    def kill(self, process):
        process.send_signal(signal.SIGKILL)
        process.wait()

    def check_events(self, figures):
        self.assertEqual(figures["events_read"] + figures["events_lost"], figures["events_recorded"])
