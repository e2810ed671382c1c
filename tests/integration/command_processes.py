"""A replay that holds what is live is seen alike by a scrape, by ps, and by summary after it was killed."""
import json
import re
import signal
import time
import unittest
import urllib.request

from command_runner import DATA, KEYS, PATIENCE, CommandTest
from expected_refusals import simulate

# History, records, live bytes, live allocations.
HELD = [
    ("resnet", 4_000, 3_129_743_888, 748),
    ("gpt2", 6_000, 2_205_307_908, 620),
    ("vit_threads", 8_000, 854_185_888, 180),
]


def scrape(url):
    with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
        return answer.read().decode()


def sample(text, name):
    return [float(value) for value in re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE)]


class Processes(CommandTest):
    def history(self, name):
        return DATA / f"{name}.csv.xz"

    def test_scrape_ps_and_summary_after_kill_agree(self):
        for name, records, live_bytes, live in HELD:
            with self.subTest(name):
                expected = simulate(self.history(name), stop_after=records)
                process = self.start_command("replay", self.history(name), "--stop-after", records, "--hold", "1h",
                                             "--listen", "127.0.0.1:0")
                url = self.wait_for(process, "serving").split("serving ")[1]
                self.wait_for(process, "holding")

                metrics = scrape(url)
                self.assertEqual(sample(metrics, "headroom_allocated_bytes"), [live_bytes])
                self.assertEqual(sample(metrics, "headroom_live_allocations"), [live])

                rows = self.json_of("ps", "--json")
                row = next(row for row in rows if row["pid"] == process.pid)
                self.assertEqual((row["allocated_bytes"], row["live_allocations"], row["state"]), (live_bytes, live, "living"))
                self.assertEqual(f":{row['port']}/", url[url.rindex(":"):url.rindex("/") + 1])
                self.assertIn(f"{process.pid}", self.run_command("ps").stdout)

                self.kill(process)
                file = next(self.flights.glob(f"*.{process.pid}.*.flight"))
                figures = self.json_of("summary", file, "--json")
                self.assertEqual(list(figures), KEYS)
                self.assertEqual((figures["live_bytes"], figures["live_allocations"]), (live_bytes, live))
                for key in ("allocations", "frees", "peak_bytes", "refused"):
                    self.assertEqual(figures[key], expected[key], key)
                self.check_events(figures)
                self.assertIn("killed", self.run_command("summary", file).stdout)
                states = {row["pid"]: row["state"] for row in self.json_of("ps", "--json")}
                self.assertEqual(states[process.pid], "killed")

    def test_ps_has_the_documented_fields(self):
        process = self.start_command("replay", self.history("oom_batch"), "--stop-after", 500, "--hold", "1h", "--budget", "5GiB")
        self.wait_for(process, "holding")
        row = self.json_of("ps", "--json")[0]
        self.assertEqual(list(row), "pid run program state age_seconds budget_bytes allocated_bytes claimed_bytes peak_bytes "
                                    "live_allocations pressure failures port threads".split())
        self.assertEqual(row["budget_bytes"], 5 << 30)
        self.assertEqual(row["program"], "headroom")
        self.assertIsNone(row["port"])

    def test_a_scrape_during_a_replay_shows_a_moving_figure_within_the_budget(self):
        process = self.start_command("replay", self.history("resnet"), "--loop", "forever", "--stretch", "3s", "--budget", "3GiB",
                                     "--listen", "127.0.0.1:0", "--seconds", 3600)
        url = self.wait_for(process, "serving").split("serving ")[1]
        seen = set()
        deadline = time.monotonic() + PATIENCE
        while len(seen) < 3 and time.monotonic() < deadline:
            allocated = sample(scrape(url), "headroom_allocated_bytes")[0]
            self.assertLessEqual(allocated, 3 << 30)
            seen.add(allocated)
            time.sleep(0.1)
        self.assertGreaterEqual(len(seen), 3)
        self.assertEqual(sample(scrape(url), "headroom_budget_bytes"), [3 << 30])

    def test_signals_end_a_replay_in_good_order(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(number):
                process = self.start_command("replay", self.history("resnet"), "--loop", "forever", "--stretch", "2s", "--json",
                                             "--listen", "127.0.0.1:0")
                self.wait_for(process, "serving")
                time.sleep(0.3)
                process.send_signal(number)
                output, _ = process.communicate(timeout=PATIENCE)
                self.assertEqual(process.returncode, 0)
                figures = json.loads(output)
                self.check_events(figures)
                self.assertIn("stopped by a signal", process.error_path.read_text())
                self.assertEqual(list(self.flights.glob("*.flight")), [], "removed on a clean exit")

    def test_a_signal_ends_a_hold(self):
        process = self.start_command("replay", self.history("oom_batch"), "--hold", 600, "--json")
        self.wait_for(process, "holding")
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 0)
        self.assertEqual(json.loads(output)["allocations"], 1_283)

    def test_the_whole_stops_after_its_seconds(self):
        started = time.monotonic()
        figures = self.json_of("replay", self.history("resnet"), "--stretch", "1h", "--seconds", 1, "--json")
        self.assertGreaterEqual(time.monotonic() - started, 0.9)
        self.check_events(figures)

    def test_a_kept_file_tells_the_end(self):
        figures = self.json_of("replay", self.history("resnet"), "--budget", "2GiB", "--keep", "--json", status=1)
        file = next(self.flights.glob("*.flight"))
        kept = self.json_of("summary", file, "--json")
        for key in ("allocations", "frees", "refused", "peak_bytes", "live_bytes", "live_allocations", "budget_bytes",
                    "events_recorded"):
            self.assertEqual(kept[key], figures[key], key)
        text = self.run_command("summary", file).stdout
        self.assertIn("exited", text)
        self.assertIn("over_budget", text)

    def test_ps_without_flight_files_says_what_to_do(self):
        done = self.run_command("ps")
        self.assertEqual(done.returncode, 0)
        self.assertIn(f"no flight files in {self.flights}", done.stdout)
        self.assertEqual(self.json_of("ps", "--json"), [])

    def test_a_folder_that_cannot_be_looked_at_is_not_one_without_processes(self):
        file = self.write("file", "")
        for arguments, environment in ((("--dir", self.folder / "nowhere"), None), (("--dir", file), None), (("--dir", ""), None),
                                       ((), self.environment(HEADROOM_DIR=str(file)))):
            for subcommand in (("ps",), ("ps", "--json"), ("top", "--once")):
                done = self.run_command(*subcommand, *arguments, environment=environment)
                self.assertEqual((done.returncode, done.stdout), (3, ""), (subcommand, arguments, done.stderr))
                self.assertNotEqual(done.stderr, "")


if __name__ == "__main__":
    unittest.main()
