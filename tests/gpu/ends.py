#!/usr/bin/env python3
"""Runs the programs of tests/gpu/ends and judges how they end.

  ends.py --list                                every case, a line each: PROGRAM HOW RESOURCE
  ends.py --programs DIR PROGRAM HOW RESOURCE   one case
  ends.py --programs DIR [--jobs N]             all of them

A case ends with the status that the program chose (7; `throw`: SIGABRT, as without headroom), says at most one line on standard error
and does not hang. Without a GPU it ends with 77 and the library's error in one line. This script exits with 0, with 1 when a case is
wrong, with 77 when there is no GPU.
"""
import argparse
import concurrent.futures
import dataclasses
import os
import re
import resource as limits
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

CHOSEN, NO_DEVICE = 7, 77
LIMIT_SECONDS = 60
HOWS = ("return", "exit", "quick_exit", "thread", "quick_thread", "throw", "pending", "unloaded")
DIRECT_HOWS = ("return", "quick_exit", "thread", "unloaded")  # where the resource makes a difference
CASES = ([(program, how, "async") for program in ("gpu_ends_one_first", "gpu_ends_two_first") for how in HOWS]
         + [("gpu_ends_one_first", how, "direct") for how in DIRECT_HOWS]
         + [("gpu_forks", how, "async") for how in ("before", "between", "after", "bare")])
# What the library says where no device can be used: no driver, one too old, no device, or a build without CUDA.
NO_DEVICE_WORDS = re.compile(r"driver|CUDA|device", re.IGNORECASE)


@dataclasses.dataclass
class Outcome:
    case: tuple
    result: str  # passed, failed or skipped
    why: str
    seconds: float = 0.0

    def __str__(self):
        return f"{self.result:8}{' '.join(self.case)}: {self.why}"


def judge(case, status, output, errors):
    program, how, _ = case
    said = errors.splitlines()
    tail = " | ".join(said[:5]) or "nothing on standard error"
    if status == NO_DEVICE:
        if len(said) == 1 and said[0].startswith(("gpu_ends: ", "gpu_forks: ")) and NO_DEVICE_WORDS.search(said[0].split(": ", 1)[1]):
            return "skipped", said[0]
        return "failed", f"expected the library's error, and why there is no device, in one line; found: {tail}"
    expected = -signal.SIGABRT if how == "throw" else CHOSEN
    if status != expected:
        return "failed", f"exit status {status}, expected {expected}: {tail}"
    if len(said) > 1:
        return "failed", f"{len(said)} lines on standard error, expected at most one: {tail}"
    if how == "unloaded":
        if not re.fullmatch(r"after the last static CUDA says \d+\n", output):
            return "failed", f"expected what CUDA says at the very end, found {output!r}"
    elif output:
        return "failed", f"it wrote to standard output: {output!r}"
    return "passed", f"status {status}" + (f"; {output.strip()}" if output else "") + (f"; said: {said[0]}" if said else "")


def run_case(programs, case, more=None):
    program, how, resource = case
    # A core of a process with a context is large, and nobody looks at it.
    limits.setrlimit(limits.RLIMIT_CORE, (0, limits.getrlimit(limits.RLIMIT_CORE)[1]))
    # A folder of its own: no two cases see each other's flight files, and what they leave goes away.
    with tempfile.TemporaryDirectory(prefix="headroom-ends-") as folder, tempfile.TemporaryFile() as out, \
            tempfile.TemporaryFile() as err:
        environment = {**os.environ, **(more or {}), "HEADROOM_DIR": folder, "HEADROOM_ENDS_RESOURCE": resource}
        # Files and a session of its own: a child that hangs holds no pipe of ours open, and ends with its parent.
        try:
            process = subprocess.Popen([str(programs / program), how], stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                       env=environment, start_new_session=True)
        except OSError as error:
            return Outcome(case, "failed", f"cannot be started: {error}")
        try:
            status = process.wait(LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return Outcome(case, "failed", f"it did not end within {LIMIT_SECONDS} s")
        out.seek(0)
        err.seek(0)
        return Outcome(case, *judge(case, status, out.read().decode(errors="replace"), err.read().decode(errors="replace")))


def run_all(programs, jobs, environment=None):
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(lambda case: run_case(programs, case, environment), CASES))


def exit_code(outcomes):
    results = {outcome.result for outcome in outcomes}
    return 1 if "failed" in results else NO_DEVICE if results == {"skipped"} else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--programs", type=Path)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("case", nargs="*")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(" ".join(case) for case in CASES))
        return 0
    if arguments.programs is None:
        parser.error("expected --programs DIR, the folder of the built programs")
    if arguments.case and tuple(arguments.case) not in CASES:
        parser.error(f"unknown case '{' '.join(arguments.case)}'; expected one that --list prints")
    programs = arguments.programs.resolve()
    outcomes = [run_case(programs, tuple(arguments.case))] if arguments.case else run_all(programs, arguments.jobs)
    for outcome in outcomes:
        print(outcome)
    return exit_code(outcomes)


if __name__ == "__main__":
    sys.exit(main())
