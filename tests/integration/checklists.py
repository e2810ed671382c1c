"""tests/checklist.py sees what is missing, failed, skipped or left out."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

CHECKLIST = pathlib.Path(__file__).resolve().parents[1] / "checklist.py"
JUNIT = """<testsuite>
<testcase name="unit.A.good" status="run"/>
<testcase name="unit.All/B.each/0  # GetParam() = 1" status="run"/>
<testcase name="unit.All/B.each/1  # GetParam() = 2" status="notrun"><skipped message="SKIP_RETURN_CODE=1"/></testcase>
<testcase name="unit.A.bad" status="fail"><failure message=""/></testcase>
<testcase name="unit.A.absent" status="notrun"><skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/></testcase>
<testcase name="unit.All/C.each/0" status="run"/>
<testcase name="unit.All/C.each/1" status="fail"/>
</testsuite>"""


class Checklists(unittest.TestCase):
    def check(self, *rows, declared=None):
        with tempfile.TemporaryDirectory() as folder:
            junit, table = pathlib.Path(folder) / "junit.xml", pathlib.Path(folder) / "list.md"
            junit.write_text(JUNIT, encoding="utf-8")
            lines = [f"<!-- rows: {len(rows) if declared is None else declared} -->", "| # | item | tests | broken by |", "|---|---|---|---|"]
            table.write_text("\n".join([*lines, *rows]) + "\n", encoding="utf-8")
            done = subprocess.run([sys.executable, CHECKLIST, junit, table], capture_output=True, text=True, check=False, timeout=240)
            return done.returncode, done.stdout

    def test_all_is_well(self):
        status, text = self.check("| 1 | a \\| b | `unit.A.good` | x |", "| 2 | b | `unit.All/B.each`, `unit.A.good` | y |", "| 3 | c | context: prose | - |")
        self.assertEqual(status, 0, text)
        self.assertIn("3 rows, 2 tests, 1 context", text)

    def test_problems_are_named(self):
        for row, expected in (("| 1 | a | `unit.A.gone` | x |", "unit.A.gone does not exist"),
                              ("| 1 | a | `unit.A.goo` | x |", "unit.A.goo does not exist"),
                              ("| 1 | a | `unit.A.bad` | x |", "unit.A.bad failed"),
                              ("| 1 | a | `unit.A.absent` | x |", "unit.A.absent was skipped"),
                              ("| 1 | a | `unit.All/C.each` | x |", "failed: unit.All/C.each/1"),
                              ("| 1 | a | unit.A.good | x |", "names no test"),
                              ("| 1 | a | `unit.A.good` | |", "columns"),
                              ("| 2 | a | `unit.A.good` | x |", "row 2, expected 1")):
            with self.subTest(row=row):
                status, text = self.check(row)
                self.assertEqual(status, 1, text)
                self.assertIn(expected, text)

    def test_a_lost_row_is_seen(self):
        status, text = self.check("| 1 | a | `unit.A.good` | x |", declared=2)
        self.assertEqual(status, 1)
        self.assertIn("1 rows, expected 2", text)


if __name__ == "__main__":
    unittest.main()
