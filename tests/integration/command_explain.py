"""`headroom explain` of the living, the killed and the well-behaved: each sentence has the figures that the program made."""
import os
import signal
import subprocess
import time
import unittest

from command_runner import DATA, HEADER, PATIENCE, CommandTest

SLOW_DRIVER = os.environ.get("HEADROOM_SLOW_DRIVER", "slow_driver")
OOM = DATA / "oom_batch.csv.xz"


def flat(text):
    """Line ends are where the terminal's width wants them."""
    return " ".join(text.split())


class Explain(CommandTest):
    def explain(self, *arguments, status=0):
        done = self.run_command("explain", *arguments)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return flat(done.stdout)

    def start_slow_driver(self):
        process = subprocess.Popen([SLOW_DRIVER], env=self.environment(), stdout=subprocess.PIPE, text=True)

        def end():
            if process.poll() is None:
                process.kill()
            process.wait()
            process.stdout.close()
        self.addCleanup(end)
        self.assertEqual(process.stdout.readline(), "hanging\n")
        return process

    def check_slow_driver_story(self, text):
        # 5 × 100 MiB and 4 × 50 MiB are held; 700 + 800 − 1,024 = 476 MiB are missing.
        self.assertIn("asked for 800 MiB for 'activations' (integration/slow_driver.cpp:", text)
        self.assertIn("the budget of its manager 'train' of 1 GiB said no: 700 MiB were claimed, so that 476 MiB were missing.", text)
        self.assertIn("At that moment 'weights' held 500 MiB in five allocations and 'kv-cache' 200 MiB in 4.", text)
        self.assertIn("One hook was asked: 'evict' said it freed 200 MiB, and really freed 50 MiB of the 200 MiB it had thought it "
                      "could (", text)
        self.assertIn("the request failed for good", text)
        self.assertIn("No record is missing, so all of this is exact.", text)
        self.assertIn("What to try: a budget of 1.46 GiB (1,572,864,000 B) would have let this request through. Look at 'evict'", text)

    def test_a_hang_in_the_driver_before_and_after_the_kill(self):
        process = self.start_slow_driver()
        deadline = time.monotonic() + PATIENCE
        # A call counts as slow when it has taken a second.
        while "Right now thread 'slow_driver' is allocating 64 MiB" not in (text := self.explain(process.pid)):
            self.assertLess(time.monotonic(), deadline, text)
            time.sleep(0.1)
        self.assertIn("is alive, for", text)
        self.check_slow_driver_story(text)

        process.send_signal(signal.SIGKILL)
        process.wait()
        file = next(self.flights.glob(f"*.{process.pid}.*.flight"))
        text = self.explain(file)
        self.assertIn("was killed, or crashed; nothing was heard of it after", text)
        self.assertIn("When it died, thread 'slow_driver' was in the middle of allocating 64 MiB, which it had begun at", text)
        self.check_slow_driver_story(text)
        self.assertEqual(text, self.explain(process.pid), "a number names its file")

    def test_a_replay_with_a_checkpoint_names_the_first_refusal(self):
        self.run_command("replay", OOM, "--budget", "5GiB", "--policy", "checkpoint", "--keep")
        text = self.explain(next(self.flights.glob("*.flight")))
        self.assertIn("ended in good order", text)
        self.assertIn("It was refused 17 times in all; the first refusal, at", text)
        self.assertIn("was of 100 MiB (105,119,891 B)", text)
        self.assertIn("Then the checkpoint callback ran", text)
        self.assertIn("of its budget of 5 GiB", text)

    def test_a_process_without_trouble_that_was_killed_points_elsewhere(self):
        process = self.start_command("replay", DATA / "resnet.csv.xz", "--stop-after", 1000, "--hold", "1h")
        self.wait_for(process, "holding")
        self.assertIn("No request has been refused so far.", self.explain(process.pid))
        self.kill(process)
        text = self.explain(process.pid)
        self.assertIn("No request was ever refused.", text)
        self.assertIn("headroom saw no shortage of device memory, so look for who killed it", text)

    def test_a_request_above_the_whole_budget_is_told_so(self):
        history = self.write("large.csv", HEADER + "0,1,allocate,0xa,1000,0\n0,2,allocate,0xb,5000,0\n")
        self.run_command("replay", history, "--budget", "4000", "--keep")
        text = self.explain(next(self.flights.glob("*.flight")))
        self.assertIn("said no: the request alone is larger than all of it.", text)
        self.assertIn("set the budget to at least 4.88 KiB (5,000 B)", text)

    def test_a_history_is_explained_too(self):
        text = self.explain(OOM)
        self.assertIn("is a recorded history of 2,609 records", text)
        self.assertIn("The history has 43 failed requests", text)
        self.assertIn("The most it ever held was 5.31 GiB", text)
        done = self.run_command("explain", "-", stdin=HEADER + "0,1,allocate,0xa,100,0\n")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("No request was ever refused.", flat(done.stdout))

    def test_what_stays_for_long_looks_like_a_leak(self):
        rows = ["0,0,allocate,0xa,1000,0"] + [f"0,{i}000000,{action},0xb,24,0" for i in range(1, 100, 2)
                                             for action in ("allocate", "free")] + ["0,100000000,allocate,0xc,24,0"]
        text = self.explain(self.write("leak.csv", HEADER + "\n".join(rows) + "\n"))
        self.assertIn("At the end 1 KiB were live, and 1000 B of that in one allocation had been there since before 50.0 s into "
                      "the history: a leak, unless it is meant to stay.", text)

    def test_lines_are_broken_at_words(self):
        done = self.run_command("explain", OOM)
        self.assertLessEqual(max(map(len, done.stdout.splitlines())), 100)

    def test_what_cannot_be_explained(self):
        for argument, says in [("999999999", "process 999999999 has left no flight file in"),
                               (self.folder / "missing", "is no file; expected a file or a process number"),
                               (self.write("words.txt", "hello\n"), "no known kind")]:
            done = self.run_command("explain", argument)
            self.assertEqual((done.returncode, done.stdout), (3, ""), argument)
            self.assertIn(says, done.stderr)
        self.assertEqual(self.run_command("explain").returncode, 2)


if __name__ == "__main__":
    unittest.main()
