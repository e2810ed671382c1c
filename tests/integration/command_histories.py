"""Each shipped history: replay and summary give the recorded figures; budgets refuse what an independent witness refuses."""
import unittest

from command_runner import DATA, HEADER, KEYS, CommandTest
from expected_refusals import simulate

MIB, GIB = 1 << 20, 1 << 30

# The table of the histories' README, made without headroom: allocate, free, failures, peak, live bytes, live allocations.
RECORDED = {
    "resnet": (4_143, 4_140, 0, 3_192_592_912, 68_157_440, 3),
    "gpt2": (6_176, 6_176, 0, 10_579_622_600, 0, 0),
    "vit_threads": (8_608, 8_600, 0, 1_125_873_568, 138_412_032, 8),
    "oom_batch": (1_283, 1_283, 43, 5_698_655_552, 0, 0),
}
# History, budget as written, in bytes, refused, peak: known before the command was.
BUDGETS = [
    ("resnet", "2GiB", 2 * GIB, 921, 2_147_482_180),
    ("oom_batch", "5GiB", 5 * GIB, 17, 5_364_684_096),
    ("gpt2", "8GiB", 8 * GIB, 4, 8_348_988_104),
    ("vit_threads", "1GiB", 1 * GIB, 17, 1_072_645_024),
    ("gpt2", "10579622599", 10_579_622_599, 1, 9_981_203_212),
    ("gpt2", "10579622600", 10_579_622_600, 0, 10_579_622_600),
]
COMPARED = "allocations frees trace_failures refused unmatched_frees peak_bytes live_bytes live_allocations".split()


def history(name):
    return DATA / f"{name}.csv.xz"


class Histories(CommandTest):
    def test_replay_without_budget_gives_the_recorded_figures(self):
        for name, (allocations, frees, failures, peak, live_bytes, live) in RECORDED.items():
            with self.subTest(name):
                figures = self.json_of("replay", history(name), "--json")
                self.assertEqual(list(figures), KEYS)
                self.assertEqual(figures["allocations"], allocations)
                self.assertEqual(figures["frees"], frees)
                self.assertEqual(figures["trace_failures"], failures)
                self.assertEqual(figures["peak_bytes"], peak)
                self.assertEqual(figures["live_bytes"], live_bytes)
                self.assertEqual(figures["claimed_bytes"], live_bytes)
                self.assertEqual(figures["live_allocations"], live)
                self.assertEqual(figures["refused"], 0)
                self.assertEqual(figures["unmatched_frees"], 0)
                self.assertEqual(figures["loop_frees"], 0)
                self.assertIsNone(figures["budget_bytes"])
                self.assertGreaterEqual(figures["events_recorded"], allocations + frees)
                self.check_events(figures)

    def test_summary_of_the_history_gives_them_too(self):
        for name, (allocations, frees, failures, peak, live_bytes, live) in RECORDED.items():
            with self.subTest(name):
                figures = self.json_of("summary", history(name), "--json")
                self.assertEqual(list(figures), KEYS)
                self.assertEqual([figures[key] for key in ("allocations", "frees", "trace_failures", "peak_bytes", "live_bytes",
                                                           "live_allocations")],
                                 [allocations, frees, failures, peak, live_bytes, live])
                self.assertEqual(figures["events_recorded"], allocations + frees + failures)
                self.check_events(figures)

    def test_a_budget_refuses_what_the_witness_refuses(self):
        for name, text, limit, refused, peak in BUDGETS:
            with self.subTest(f"{name} {text}"):
                expected = simulate(history(name), limit)
                self.assertEqual((expected["refused"], expected["peak_bytes"]), (refused, peak), "the witness itself")
                figures = self.json_of("replay", history(name), "--budget", text, "--json", status=1 if refused else 0)
                self.assertEqual({key: figures[key] for key in COMPARED}, expected)
                self.assertEqual(figures["budget_bytes"], limit)
                self.check_events(figures)

    def test_hooks_give_up_what_they_hold_for_requests_that_do_not_fit(self):
        # The hook holds 2 x 64 MiB. 100 MiB miss 36, then 50 MiB miss 22: one block each time.
        path = self.write("two.csv", HEADER + f"0,1,allocate,0xa,{100 * MIB},0\n0,2,allocate,0xb,{50 * MIB},0\n")
        done = self.run_command("replay", path, "--budget", "192MiB", "--hook", "cache:128MiB:1", "--policy", "retry")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("2 requests, 2 of them granted after all; 2 hook runs freed 128 MiB", done.stdout)
        # Without the hook's help the second one does not fit beside what the hook holds.
        overhead = self.run_command("replay", path, "--budget", "192MiB", "--hook", "cache:128MiB:1:65MiB")
        self.assertEqual(overhead.returncode, 1, overhead.stdout + overhead.stderr)
        self.assertIn("0 hook runs", overhead.stdout)

    def test_what_a_hook_frees_is_not_taken_back_before_the_request_has_it(self):
        # Of 1,024 MiB the hook holds 14 x 64 = 896. 512 MiB miss 384: six blocks. After the third, 704 are used and there is no pressure.
        path = self.write("one.csv", HEADER + f"0,1,allocate,0xa,{512 * MIB},0\n0,2,free,0xa,{512 * MIB},0\n")
        done = self.run_command("replay", path, "--budget", "1GiB", "--hook", "cache:896MiB:1")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("1 request, 1 of them granted after all; 1 hook run freed 384 MiB", done.stdout)
        # Freed again there is no pressure, and the hook has its 896 MiB back for the second time around.
        again = self.run_command("replay", path, "--budget", "1GiB", "--hook", "cache:896MiB:1", "--loop", "2")
        self.assertEqual(again.returncode, 0, again.stdout + again.stderr)
        self.assertIn("2 requests, 2 of them granted after all; 2 hook runs freed 768 MiB", again.stdout)

    def test_a_policy_without_hooks_decides_alone(self):
        path = self.write("two.csv", HEADER + f"0,1,allocate,0xa,{100 * MIB},0\n0,2,allocate,0xb,{50 * MIB},0\n")
        for policy, said in (("fail", "0 waits, 0 checkpoints"), ("wait:1", "1 wait, 0 checkpoints"),
                             ("checkpoint", "0 waits, 1 checkpoint"), ("retry", "0 waits, 0 checkpoints")):
            with self.subTest(policy):
                done = self.run_command("replay", path, "--budget", "120MiB", "--policy", policy)
                self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
                self.assertIn(said, done.stdout)

    def test_the_text_tells_the_last_loop_from_all_of_them(self):
        done = self.run_command("replay", history("oom_batch"), "--budget", "5GiB", "--loop", 3, "--policy", "fail",
                                environment=self.environment(HEADROOM_DUMP="off"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("in the last of 3 loops 17 of 1,283 allocations refused", done.stdout)
        self.assertIn("; in all loops 51 refused\n", done.stdout)

    def test_loops_show_the_last_one_and_count_what_was_freed_between_them(self):
        figures = self.json_of("replay", history("resnet"), "--loop", 5, "--json")
        self.assertEqual(figures["loop_frees"], 4 * 3)
        self.assertEqual(figures["allocations"], 4_143)
        self.assertEqual(figures["peak_bytes"], 3_192_592_912)
        self.assertEqual(figures["live_bytes"], 68_157_440)
        self.check_events(figures)

    def test_free_order_balances_the_books(self):
        figures = self.json_of("replay", history("vit_threads"), "--order", "free", "--loop", 3, "--json")
        self.assertEqual(figures["allocations"], 8_608)
        self.assertEqual(figures["frees"], 8_600)
        self.assertEqual(figures["live_bytes"], 138_412_032)
        self.assertEqual(figures["loop_frees"], 2 * 8)
        self.check_events(figures)

    def test_tags_name_threads_streams_sizes_or_nothing(self):
        for tag, expected in (("size", "1-32MiB"), ("thread", "thread 0"), ("stream", "stream 0"), ("none", "untagged")):
            with self.subTest(tag):
                done = self.run_command("replay", history("vit_threads"), "--tag", tag, "--budget", "1GiB")
                self.assertEqual(done.returncode, 1, done.stderr)
                refusal = [line for line in done.stdout.splitlines() if line.startswith("first refused")]
                self.assertIn(expected, refusal[0])

    def test_standard_input_is_a_history_too(self):
        text = "Thread,Time,Action,Pointer,Size,Stream\n0,1,allocate,0xa,100,0\n"
        self.assertEqual(self.json_of("replay", "-", "--json", stdin=text)["live_bytes"], 100)
        self.assertEqual(self.json_of("summary", "-", "--json", stdin=text)["live_bytes"], 100)

    def test_summary_fails_above_a_limit(self):
        peak = RECORDED["resnet"][3]
        self.json_of("summary", history("resnet"), "--json", "--fail-above", peak)
        self.json_of("summary", history("resnet"), "--json", "--fail-above", peak - 1, status=1)


if __name__ == "__main__":
    unittest.main()
