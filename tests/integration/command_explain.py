"""`headroom explain` of the living, the killed and the well-behaved: each sentence has the figures that the program made."""
import os
import pickle
import re
import signal
import time
import unittest

from command_runner import DATA, HEADER, PATIENCE, CommandTest

SLOW_DRIVER = os.environ.get("HEADROOM_SLOW_DRIVER", "slow_driver")
OOM = DATA / "oom_batch.csv.xz"


def flat(text):
    """Line ends are where the terminal's width wants them."""
    return " ".join(text.split())


def sentences(text):
    """How many there are: each ends in a full stop, and the next begins with a capital letter, or with a name."""
    return len(re.findall(r"\.(?= [A-Z'`a-z]|$)", text))


class Explain(CommandTest):
    def explain(self, *arguments, status=0):
        done = self.run_command("explain", *arguments)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        text = flat(done.stdout)
        self.assertLessEqual(sentences(text), 14, text)
        return text

    def test_a_snapshots_history_begins_with_its_first_record(self):
        def entry(action, time, **more):
            return {"action": action, "size": 512, "stream": 0, "frames": [], "time_us": 1_700_000_000_000_000 + time, **more}
        trace = [entry("alloc", 0, addr=0x1000), entry("oom", 2_500_000, size=1 << 40, device_free=0),
                 entry("free_completed", 5_300_000, addr=0x1000)]
        span = {"stage": "START", "name": "training", "device": 0, "time_us": trace[0]["time_us"] - 900_000}
        snapshot = {"segments": [], "device_traces": [trace], "external_annotations": [span]}
        text = self.explain(self.write("of.pickle", pickle.dumps(snapshot)))
        self.assertIn(" records over 5.3 s", text)
        self.assertIn("2.5 s into the history", text)

    def start_slow_driver(self, *scene):
        return self.start_program(SLOW_DRIVER, *scene, says="hanging")

    def killed_slow_driver(self, *scene):
        process = self.start_slow_driver(*scene)
        self.kill(process)
        return process

    def check_failure_of_slow_driver(self, text):
        # 5 × 100 MiB and 4 × 50 MiB are held; 700 + 800 − 1,024 = 476 MiB are missing.
        self.assertIn("asked for 800 MiB for 'activations' (integration/slow_driver.cpp:", text)
        self.assertIn("the budget of 1 GiB of its manager 'train' said no: 700 MiB were claimed, so that 476 MiB were missing.", text)
        self.assertRegex(text, r"One hook was asked: 'evict' said that it freed 200 MiB, and really freed 50 MiB[.( ]")
        self.assertIn("That was not enough: the request failed for good", text)
        self.assertIn("What to try: a budget of 1.46 GiB (1,572,864,000 B) for manager 'train' would have let this request through. "
                      "Look at 'evict': it reports more than it frees to this manager, so it is freeing somewhere else, or later", text)

    def check_slow_driver_story(self, text):
        self.check_failure_of_slow_driver(text)
        self.assertIn("At that moment 'weights' held 500 MiB in five allocations and 'kv-cache' 200 MiB in four.", text)
        # The peak was that moment: it is not told twice.
        self.assertRegex(text, r"The most that it held was 700 MiB, 68 % of its budget of 1 GiB, (at|in) [^.;]* and by the same tags\.")
        self.assertIn("No record is missing, so all of this is exact.", text)

    def test_a_hang_in_the_driver_before_and_after_the_kill(self):
        process = self.start_slow_driver()
        deadline = time.monotonic() + PATIENCE
        # A call counts as slow when it has taken a second.
        while "Right now thread 'slow_driver' is allocating 64 MiB" not in (text := self.explain(process.pid)):
            self.assertLess(time.monotonic(), deadline, text)
            time.sleep(0.1)
        self.assertIn("is alive, and has been for", text)
        self.check_slow_driver_story(text)

        process.send_signal(signal.SIGKILL)
        process.wait()
        file = next(self.flights.glob(f"*.{process.pid}.*.flight"))
        text = self.explain(file)
        self.assertIn("was killed, or crashed: nothing was heard of it after", text)
        self.assertIn("When it died, thread 'slow_driver' was in the middle of allocating 64 MiB, begun at", text)
        self.check_slow_driver_story(text)
        self.assertEqual(text, self.explain(process.pid), "a number names its file")

    def dump(self, target, *arguments):
        out = self.folder / f"dump-{len(arguments)}-{time.monotonic_ns()}.json"
        done = self.run_command("dump", target, "-o", out, *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return out

    def test_a_dump_of_the_killed_tells_what_its_flight_file_tells(self):
        process = self.killed_slow_driver()
        self.assertEqual(self.explain(self.dump(process.pid)), self.explain(process.pid))

    def test_a_dump_of_the_living_says_when_that_was(self):
        process = self.start_slow_driver()
        text = self.explain(self.dump(process.pid))
        self.assertIn("was alive when this was written, at", text)
        self.assertIn("When this was written, thread 'slow_driver' was in the middle of allocating 64 MiB", text)
        self.check_slow_driver_story(text)

    def test_a_dump_without_events_still_tells_the_failure_with_hooks_and_holders(self):
        process = self.killed_slow_driver()
        text = self.explain(self.dump(process.pid, "--no-events"))
        self.check_failure_of_slow_driver(text)
        # What was live at the end, 150 MiB of cache, is not what was live then.
        self.assertIn("It held as much then as it ever did: at its peak of 700 MiB 'weights' held 500 MiB and 'kv-cache' 200 MiB.", text)
        self.assertNotIn("150 MiB", text)
        self.assertIn("When it died, thread 'slow_driver' was in the middle of allocating 64 MiB", text)
        self.assertIn("This file was written without events", text)
        self.assertNotIn("is exact", text)

    def test_a_dump_without_events_of_a_process_that_ended_well(self):
        self.run_command("replay", OOM, "--budget", "5GiB", "--policy", "checkpoint", "--keep")
        text = self.explain(self.dump(next(self.flights.glob("*.flight")), "--no-events"))
        self.assertNotIn("Nothing of its own was live", text)
        self.assertIn("'>32MiB' held 4.93 GiB", text)
        self.assertIn("the checkpoint callback ran", text)

    def test_the_post_mortem_that_a_process_writes_of_itself(self):
        self.run_command("replay", OOM, "--budget", "5GiB", "--policy", "checkpoint", environment=self.environment(HEADROOM_DUMP="on"))
        text = self.explain(next(self.dumps.iterdir()))
        self.assertIn("was alive when this was written", text)
        self.assertIn("asked for 100 MiB (105,119,891 B) for '>32MiB'", text)
        self.assertIn("71.9 MiB (75,384,275 B) were missing", text)

    def test_a_hook_whose_worker_frees_did_what_it_said(self):
        process = self.killed_slow_driver("worker")
        text = self.explain(process.pid)
        self.assertIn("One hook was asked: 'evict' said that it freed 200 MiB; its own thread freed nothing, but what its manager had "
                      "claimed fell by 200 MiB meanwhile", text)
        self.assertNotIn("ook at 'evict'", text)

    def test_a_hook_that_hangs_on_another_thread(self):
        process = self.start_slow_driver("busy")
        text = self.explain(process.pid)
        self.assertIn("asked for 800 MiB for 'activations'", text)
        self.assertIn("One hook was asked: 'evict' was running on another thread, and was not waited for any longer", text)
        self.assertIn("Look at why 'evict' takes so long.", text)
        self.assertNotIn("door", text)

    def test_a_hook_that_ran_on_another_thread_was_asked(self):
        process = self.start_slow_driver("shared")
        text = self.explain(process.pid)
        self.assertIn("it asked for 800 MiB for 'activations'", text)
        self.assertIn("One hook was asked: 'evict' ran on another thread meanwhile, and that run was waited for", text)
        self.assertIn("That was not enough: the request failed for good", text)

    def test_a_hook_that_does_not_come_back(self):
        process = self.start_slow_driver("stuck")
        text = self.explain(process.pid)
        self.assertIn("One hook was asked: 'evict' is still running", text)
        self.assertIn("The request is still being dealt with.", text)
        self.kill(process)
        text = self.explain(process.pid)
        self.assertIn("One hook was asked: 'evict' was still running when the records end", text)
        self.assertIn("What became of the request is not recorded, for the program ended in the middle of it.", text)
        self.assertIn("Look at why 'evict' takes so long.", text)

    def test_what_failed_inside_a_hook_matters_less_than_the_request_around_it(self):
        process = self.killed_slow_driver("inside")
        text = self.explain(process.pid)
        self.assertIn("it asked for 400 MiB for 'activations'", text)
        self.assertIn("One hook was asked: 'evict' freed 200 MiB. In the end the request was granted", text)
        self.assertIn("It was refused twice in all; this was the first; one of these requests went through after all.", text)
        self.assertIn("What to try: nothing is urgent, for the last shortage was mended;", text)

    def test_of_many_threads_that_hang_three_are_named(self):
        process = self.killed_slow_driver("many")
        text = self.explain(process.pid)
        self.assertEqual(text.count(" allocating 10 MiB, begun at "), 3, text)
        self.assertIn("; and three other threads were at work too: a call into the driver that never came back looks like this.", text)

    def test_who_is_killed_while_it_waits_did_not_fail_at_once(self):
        process = self.start_slow_driver("waits")
        text = self.explain(process.pid)
        self.assertIn("It has been waiting for room in the budget since", text)
        self.assertNotIn("failed", text)
        self.kill(process)
        text = self.explain(process.pid)
        self.assertIn("asked for 800 MiB for 'activations'", text)
        self.assertIn("When the program ended it had been waiting for room in the budget since", text)
        self.assertNotIn("failed", text)

    def test_a_device_budget_tells_who_else_held_what(self):
        process = self.start_slow_driver("device")
        text = self.explain(process.pid)
        self.assertIn("asked for 400 MiB for 'activations'", text)
        self.assertIn("the budget of 1 GiB of the device, which all its managers share, said no: 700 MiB were claimed, so that 76 MiB "
                      "were missing. Nothing of its own was live in that manager at that moment. On the same device manager 'serve' "
                      "held 700 MiB, most of it 'weights'. No hook ran for it, for its manager has none, and nothing else was tried: "
                      "the request failed at once.", text)
        self.assertIn("a budget of 1.07 GiB (1,153,433,600 B) for the device would have let this request through.", text)

    def test_a_replay_with_a_checkpoint_names_the_first_refusal(self):
        self.run_command("replay", OOM, "--budget", "5GiB", "--policy", "checkpoint", "--keep")
        text = self.explain(next(self.flights.glob("*.flight")))
        self.assertIn("ended in good order", text)
        self.assertIn("It was refused 17 times in all; the first, at", text)
        self.assertIn("was of 100 MiB (105,119,891 B)", text)
        self.assertIn("the checkpoint callback ran", text)
        self.assertNotIn("5 GiB were claimed", text)
        self.assertIn("of its budget of 5 GiB", text)

    def test_a_process_without_trouble_that_was_killed_points_elsewhere(self):
        process = self.start_command("replay", DATA / "resnet.csv.xz", "--stop-after", 1000, "--hold", "1h")
        self.wait_for(process, "holding")
        self.assertIn("No request has been refused so far.", self.explain(process.pid))
        self.kill(process)
        text = self.explain(process.pid)
        self.assertIn("No request was ever refused.", text)
        self.assertIn("What to try: look for who killed it, for headroom saw no shortage of device memory:", text)

    def test_a_budget_far_below_what_is_claimed_is_a_share_like_any_other(self):
        process = self.start_command("replay", DATA / "resnet.csv.xz", "--budget", "1KiB", "--stop-after", 100, "--hold", "1h")
        self.wait_for(process, "holding")
        self.assertRegex(self.run_command("top", process.pid, "--once").stdout, r"of 1 KiB \(\d+ %\)")

    def test_a_request_above_the_whole_budget_is_told_so(self):
        history = self.write("large.csv", HEADER + "0,1,allocate,0xa,1000,0\n0,2,allocate,0xb,5000,0\n")
        self.run_command("replay", history, "--budget", "4000", "--keep")
        text = self.explain(next(self.flights.glob("*.flight")))
        self.assertIn("said no: the request alone is larger than all of it.", text)
        self.assertIn("set the budget of manager 'replay' to at least 4.88 KiB (5,000 B)", text)

    def test_a_history_is_explained_too(self):
        text = self.explain(OOM)
        self.assertIn("is a recorded history of 2,609 records", text)
        self.assertIn("; it tells of no budget.", text)
        self.assertIn("The history has 43 failed requests in all; the first, 304 ms into the history, was of 58 MiB", text)
        self.assertIn("The most that it held was 5.31 GiB", text)
        done = self.run_command("explain", "-", stdin=HEADER + "0,1,allocate,0xa,100,0\n")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("No request was ever refused.", flat(done.stdout))

    def test_what_stays_for_long_looks_like_a_leak(self):
        rows = ["0,0,allocate,0xa,1000,0"] + [f"0,{i}000000,{action},0xb,24,0" for i in range(1, 100, 2)
                                             for action in ("allocate", "free")] + ["0,100000000,allocate,0xc,24,0"]
        text = self.explain(self.write("leak.csv", HEADER + "\n".join(rows) + "\n"))
        self.assertIn("At the end 1 KiB were live, and 1000 B of that in one allocation that had been there for more than half of the "
                      "history: a leak, unless it is meant to stay", text)

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
