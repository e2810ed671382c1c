"""fit names the smallest budget to the byte, and its curve is what replay refuses."""
import gzip
import lzma
import unittest

from command_histories import RECORDED, history
from command_runner import HEADER, CommandTest
from expected_refusals import simulate


class Fit(CommandTest):
    def test_the_smallest_budget_is_the_recorded_peak(self):
        for name, (*_, peak, _, _) in RECORDED.items():
            with self.subTest(name):
                found = self.json_of("fit", history(name), "--json")
                self.assertEqual(list(found), ["smallest_budget_bytes", "curve"])
                self.assertEqual(found["smallest_budget_bytes"], peak)
                self.assertEqual(found["curve"][-1], {"budget_bytes": peak, "refused": 0})
                budgets = [point["budget_bytes"] for point in found["curve"]]
                self.assertEqual(budgets, sorted(set(budgets)))

    def test_the_curve_says_what_the_witness_says(self):
        for name in RECORDED:
            for point in self.json_of("fit", history(name), "--points", 6, "--json")["curve"]:
                with self.subTest(name, budget=point["budget_bytes"]):
                    expected = simulate(history(name), point["budget_bytes"])
                    self.assertEqual((point["refused"], point["budget_bytes"]), (expected["refused"], expected["peak_bytes"]))

    def test_replay_agrees_about_budgets_of_the_curve_and_a_byte_below_them(self):
        for name in ("gpt2", "vit_threads"):
            for point in self.json_of("fit", history(name), "--points", 2, "--json")["curve"]:
                for below in (0, 1):
                    budget = point["budget_bytes"] - below
                    with self.subTest(name, budget=budget):
                        expected = simulate(history(name), budget)["refused"]
                        replayed = self.json_of("replay", history(name), "--budget", budget, "--json", status=1 if expected else 0)
                        self.assertEqual(replayed["refused"], expected)
                        if below == 0:
                            self.assertEqual(replayed["refused"], point["refused"])

    def test_text_says_what_a_byte_less_refuses(self):
        done = self.run_command("fit", history("gpt2"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("runs under 9.85 GiB (10,579,622,600 B), and not under less", done.stdout)
        self.assertRegex(done.stdout, r"9,981,203,212 +1 ")

    def test_standard_input_and_other_compressions(self):
        text = HEADER + "0,1,allocate,0xa,100,0\n0,2,allocate,0xb,7,0\n"
        self.assertEqual(self.json_of("fit", "-", "--json", stdin=text)["smallest_budget_bytes"], 107)
        for name, compress in (("a.gz", gzip.compress), ("a.xz", lzma.compress)):
            self.assertEqual(self.json_of("fit", self.write(name, compress(text.encode())), "--json")["smallest_budget_bytes"], 107)

    def test_no_budget_is_enough_for_what_no_ledger_can_say(self):
        path = self.write("huge.csv", HEADER + "0,1,allocate,0xa,18446744073709551615,0\n0,2,allocate,0xb,5,0\n")
        self.assertEqual(self.json_of("fit", path, "--json", status=1),
                         {"smallest_budget_bytes": None, "curve": [{"budget_bytes": 0, "refused": 2},
                                                                   {"budget_bytes": 5, "refused": 1}]})
        self.assertIn("refused under any budget", self.run_command("fit", path).stdout)

    def test_bad_input(self):
        self.assertEqual(self.run_command("fit").returncode, 2)
        for points in ("0", "-1", "x", "10001"):
            done = self.run_command("fit", history("resnet"), f"--points={points}")
            self.assertEqual(done.returncode, 2, points)
            self.assertIn("--points", done.stderr)
        bad = self.run_command("fit", self.write("bad.csv", HEADER + "0,1,grab,0xa,1,0\n"))
        self.assertEqual((bad.returncode, bad.stdout), (3, ""))
        self.assertIn(":2:", bad.stderr)
        missing = self.run_command("fit", self.folder / "missing")
        self.assertEqual(missing.returncode, 3)
        self.assertIn("No such file", missing.stderr)


if __name__ == "__main__":
    unittest.main()
