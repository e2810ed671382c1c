"""`headroom export`: every process of a machine as one target; sums that hold whoever dies, and files of all kinds."""
import os
import resource
import shutil
import signal
import subprocess
import threading
import time
import unittest

from command_runner import COMMAND, DATA, PATIENCE
from expected_refusals import simulate
from export_runner import ExportTest, found, total, whole

SUMMED = ("allocations_total", "frees_total", "allocation_bytes_total", "deallocation_bytes_total", "events_recorded_total")


class Processes(ExportTest):
    def test_sums_hold_while_two_of_eight_are_killed_and_one_exits(self):
        exporter = self.export("--keep-dead", "1h")
        forgetful = self.export("--keep-dead", "1s", "--dump-dir", "off")
        held = (("oom_batch", 500), ("oom_batch", 1000), ("resnet", 2000), ("resnet", 4000), ("gpt2", 1000), ("gpt2", 3000),
                ("vit_threads", 2000), ("vit_threads", 4000))
        processes = [self.held(name, records) for name, records in held]
        allocations = sum(simulate(DATA / f"{name}.csv.xz", stop_after=records)["allocations"] for name, records in held)
        self.scrape_until(forgetful, lambda samples: total(samples, "node_processes", state="living") == 8)
        before = self.scrape_until(exporter, lambda samples: total(samples, "node_processes", state="living") == 8)
        self.assertEqual(whole(before, "allocations_total"), allocations)
        self.assertEqual(len(found(before, "allocated_bytes")), 8)

        for process in processes[:2]:
            self.kill(process)
        after_kill = self.scrape_until(exporter, lambda samples: total(samples, "processes_died_total", state="killed") == 2)
        self.assertEqual(len(found(after_kill, "allocated_bytes")), 6, "gauges of the dead are gone at once")
        self.assertEqual(len(found(after_kill, "allocations_total")), 8, "and their counters are not")
        self.end(processes[2])
        after = self.scrape_until(exporter, lambda samples: total(samples, "processes_died_total", state="exited") == 1)
        self.assertEqual(len(found(after, "allocated_bytes")), 5)
        later = self.scrape_until(forgetful, lambda samples: total(samples, "processes_died_total") == 3 and
                                  total(samples, "node_processes", state="kept") == 0)
        self.assertEqual(len(found(later, "allocations_total")), 5)
        self.assertGreater(total(later, "exited_allocations_total"), 0)

        print(f"\n{'':24}{'before':>16}{'two killed':>16}{'one exited':>16}{'kept no more':>16}")
        for name in SUMMED:
            figures = [whole(samples, name) for samples in (before, after_kill, after, later)]
            print(f"{name:24}" + "".join(f"{figure:16.0f}" for figure in figures))
            self.assertEqual(figures, sorted(figures), f"{name} fell")
            self.assertEqual(figures[0], figures[1], f"{name}: nobody did anything while two were killed")
            self.assertEqual(figures[2], figures[3], f"{name}: nobody did anything while time passed")
        self.assertEqual(whole(later, "allocations_total"), allocations)

        # What was killed is a post-mortem now, and its file is gone; who exited took his own along.
        self.scrape_until(exporter, lambda samples: total(samples, "post_mortems_total") == 2)
        self.assertEqual(len(list(self.dumps.glob("*.post-mortem.json"))), 2)
        deadline = time.monotonic() + PATIENCE
        while len(list(self.flights.glob("*.flight"))) != 5 and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual(len(list(self.flights.glob("*.flight"))), 5)
        self.end(exporter)
        self.assertEqual(exporter.returncode, 0)

    def test_short_jobs_count(self):
        exporter = self.export()
        history = self.tiny_history()
        started = time.monotonic()
        for _ in range(20):
            self.assertEqual(self.run_command("replay", history).returncode, 0)
        each = (time.monotonic() - started) / 20
        # On a machine that has no time for the exporter a job's file may be gone before it looks; then that is said.
        def missed(samples):
            return total(samples, "node_files_skipped_total", reason="vanished")

        def counted(samples):
            return total(samples, "processes_died_total", state="exited")
        samples = self.scrape_until(exporter, lambda samples: counted(samples) + missed(samples) == 20)
        self.assertEqual(whole(samples, "allocations_total"), 3 * counted(samples))
        self.assertEqual(whole(samples, "allocation_bytes_total"), (256 + 512 + 768) * counted(samples))
        self.assertEqual(total(samples, "node_files_skipped_total"), missed(samples))
        print(f"\n20 jobs of {1000 * each:.0f} ms each: {counted(samples):.0f} counted, {missed(samples):.0f} missed and said to be")

    def test_a_process_that_stands_still_is_shown_as_it_is_and_since_when(self):
        exporter = self.export()
        process = self.held("resnet", 4000)
        before = self.scrape_until(exporter, lambda samples: total(samples, "node_processes", state="living") == 1)
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        for _ in range(3):
            samples = self.scrape(exporter)
            self.assertEqual(total(samples, "process_up", pid=str(process.pid)), 1)
            self.assertEqual(total(samples, "allocated_bytes"), total(before, "allocated_bytes"))
            self.assertEqual(total(samples, "last_activity_timestamp_seconds"), total(before, "last_activity_timestamp_seconds"))
            self.assertEqual(total(samples, "events_recorded_total"), total(before, "events_recorded_total"))
        self.assertGreater(total(before, "last_activity_timestamp_seconds"), 0)
        process.send_signal(signal.SIGCONT)

    def test_who_was_there_first_counts_and_who_was_dead_is_only_found(self):
        killed, living = self.held(), self.held()
        self.kill(killed)
        exporter = self.export()
        samples = self.scrape(exporter)
        self.assertEqual(len(found(samples, "allocations_total")), 1)
        self.assertEqual(found(samples, "process_up", pid=str(living.pid))[0]["process"], "headroom")
        self.assertEqual(total(samples, "node_processes_found_dead_total"), 1)
        self.assertEqual(total(samples, "processes_died_total"), 0)
        self.scrape_until(exporter, lambda samples: total(samples, "post_mortems_total") == 1)

    def test_a_post_mortem_that_cannot_be_written_is_counted_and_leaves_the_file(self):
        not_a_folder = self.write("file", "x")
        exporter = self.export("--dump-dir", not_a_folder)
        process = self.held()
        flight = self.flight_of(process)
        self.kill(process)
        samples = self.scrape_until(exporter, lambda samples: total(samples, "post_mortem_failures_total") == 1)
        self.assertEqual(total(samples, "post_mortems_total"), 0)
        self.assertIn(f"no post-mortem of {flight}", exporter.error_path.read_text())
        self.assertTrue(flight.exists())

    def test_without_post_mortems_the_files_stay(self):
        exporter = self.export("--dump-dir", "off")
        process = self.held()
        flight = self.flight_of(process)
        self.kill(process)
        self.scrape_until(exporter, lambda samples: total(samples, "processes_died_total", state="killed") == 1)
        time.sleep(0.6)  # two looks of the exporter: there is nothing to wait for
        self.assertTrue(flight.exists())
        self.assertFalse(self.dumps.exists())

    def test_a_post_mortem_tells_what_the_process_held(self):
        exporter = self.export()
        process = self.held("resnet", 4000)
        self.kill(process)
        self.scrape_until(exporter, lambda samples: total(samples, "post_mortems_total") == 1)
        dump = next(self.dumps.glob(f"headroom.{process.pid}.*.post-mortem.json"))
        self.assertEqual(self.json_of("summary", dump, "--json")["live_bytes"], 3_129_743_888)

    def test_a_file_that_is_truncated_ends_nobody(self):
        exporter = self.export()
        kept, cut = self.held("resnet", 4000), self.held("gpt2", 3000)
        before = self.scrape_until(exporter, lambda samples: total(samples, "node_processes", state="living") == 2)
        stop = threading.Event()
        errors = []

        def scrape_on():
            while not stop.is_set():
                try:
                    self.scrape(exporter)
                except Exception as error:  # whatever it is, it is what this test is about
                    errors.append(error)
                    return

        scrapers = [threading.Thread(target=scrape_on) for _ in range(2)]
        for scraper in scrapers:
            scraper.start()
        os.truncate(self.flight_of(cut), 8192)
        samples = self.scrape_until(exporter, lambda samples: total(samples, "node_files_skipped_total", reason="truncated") == 1)
        stop.set()
        for scraper in scrapers:
            scraper.join()
        self.assertEqual(errors, [])
        self.assertIsNone(exporter.poll())
        self.assertEqual(found(samples, "process_up", pid=str(cut.pid)), [])
        self.assertEqual(len(found(samples, "process_up", pid=str(kept.pid))), 1)
        for name in SUMMED[:4]:
            self.assertEqual(whole(samples, name), whole(before, name), name)
        self.wait_for(exporter, "was truncated")

    def test_a_run_that_comes_again_and_a_copy_of_a_file_count_once(self):
        exporter = self.export("--dump-dir", "off")
        process = self.held()
        flight = self.flight_of(process)
        before = self.scrape_until(exporter, lambda samples: total(samples, "node_processes", state="living") == 1)
        aside = self.folder / "aside"
        flight.rename(aside)
        shutil.copy(aside, self.flights / "copy.1.0123456789abcdef.flight")
        self.scrape_until(exporter, lambda samples: total(samples, "node_files_skipped_total", reason="duplicate") == 1)
        aside.rename(flight)
        self.kill(process)
        samples = self.scrape_until(exporter, lambda samples: total(samples, "processes_died_total") == 1)
        self.assertEqual(whole(samples, "allocations_total"), whole(before, "allocations_total"))

    def test_files_that_are_none_are_counted_by_reason_and_named_once(self):
        (self.flights / "broken.1.0123456789abcdef.flight").write_bytes(b"x" * 5000)
        (self.flights / "empty.1.0123456789abcdee.flight").write_bytes(b"")
        (self.flights / "link.1.0123456789abcded.flight").symlink_to("/etc/hostname")
        os.mkfifo(self.flights / "pipe.1.0123456789abcdec.flight")
        exporter = self.export()
        samples = self.scrape_until(exporter, lambda samples: total(samples, "node_files_skipped_total", reason="broken") == 2)
        self.assertEqual(total(samples, "node_files_skipped_total", reason="foreign"), 2)
        text = exporter.error_path.read_text()
        for name in ("broken", "empty", "link", "pipe"):
            self.assertEqual(text.count(f"{self.flights}/{name}.1."), 1, text)

    def test_two_processes_with_pid_1_are_served_as_themselves(self):
        unshare = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"]
        if not shutil.which("unshare") or subprocess.run([*unshare, "true"], capture_output=True).returncode != 0:
            self.skipTest("unshare --pid is not permitted here")
        exporter = self.export()
        for records in (500, 1000):
            process = subprocess.Popen([*unshare, COMMAND, "replay", DATA / "oom_batch.csv.xz", "--stop-after", str(records), "--hold",
                                        "1h"], env=self.environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            self.end_with_test(process)
        samples = self.scrape_until(
            exporter, lambda samples: sorted(value for name, _, value in samples if name == "headroom_allocations_total") ==
            sorted(simulate(DATA / "oom_batch.csv.xz", stop_after=records)["allocations"] for records in (500, 1000)))
        self.assertEqual([labels["pid"] for labels in found(samples, "process_up")], ["1", "1"])
        self.assertEqual(len({labels["run"] for labels in found(samples, "process_up")}), 2)

    def test_two_hundred_processes(self):
        exporter = self.export()
        history = self.tiny_history()

        def small_files():
            # As on a small tmpfs: the recorder halves its rings until its file fits.
            resource.setrlimit(resource.RLIMIT_FSIZE, (3 << 20, 3 << 20))

        for _ in range(200):
            process = subprocess.Popen([COMMAND, "replay", history, "--stop-after", "3", "--hold", "1h"], env=self.environment(),
                                       stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, preexec_fn=small_files)
            self.end_with_test(process)
        samples = self.scrape_until(exporter, lambda samples: total(samples, "allocations_total") == 600)
        self.assertEqual(len(found(samples, "process_up")), 200)
        started = time.monotonic()
        text = self.get(exporter)
        seconds = time.monotonic() - started
        status = (f"/proc/{exporter.pid}/status")
        with open(status, encoding="utf-8") as lines:
            resident = next(line.split()[1] for line in lines if line.startswith("VmRSS"))
        print(f"\n200 processes: {len(text.splitlines())} lines, {len(text) >> 10} KiB in {1000 * seconds:.0f} ms, "
              f"resident {int(resident) >> 10} MiB")

    def test_promtool_is_silent(self):
        if not shutil.which("promtool"):
            self.skipTest("promtool is not installed")
        exporter = self.export()
        living, killed = self.held(), self.held("resnet", 4000)
        self.kill(killed)
        self.scrape_until(exporter, lambda samples: total(samples, "processes_died_total") == 1)
        self.assertIsNone(living.poll())
        done = subprocess.run(["promtool", "check", "metrics"], input=self.get(exporter), capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))


if __name__ == "__main__":
    unittest.main()
