"""ps --threads: what each thread is doing right now, and what the threads of a killed process were doing."""
import os
import re
import time
import unittest

from command_histories import history
from command_runner import PATIENCE, CommandTest

AT_WORK = os.environ["HEADROOM_AT_WORK"]
KEYS = "thread name operation bytes since seconds manager device hook hook_since hook_seconds doing".split()


class Threads(CommandTest):
    def start_at_work(self):
        return self.start_program(AT_WORK, says="ready")

    def threads_of(self, process):
        (row,) = [row for row in self.json_of("ps", "--json") if row["pid"] == process.pid]
        return {thread["name"]: thread for thread in row["threads"]}

    def busy_threads_of(self, process):
        """As soon as all three are where they stay."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            threads = self.threads_of(process)
            if (threads.get("asker", {}).get("operation"), threads.get("giver", {}).get("operation"),
                    threads.get("hooked", {}).get("hook")) == ("allocating", "freeing", "evict"):
                return threads
            time.sleep(0.05)
        self.fail(f"they never got there: {threads}")

    def test_the_living_do_and_the_dead_did(self):
        process = self.start_at_work()
        threads = self.busy_threads_of(process)
        asker, giver, hooked = threads["asker"], threads["giver"], threads["hooked"]
        for thread in threads.values():
            self.assertEqual(list(thread), KEYS)
        self.assertEqual((asker["bytes"], asker["manager"], asker["device"], asker["hook"]), (2 << 30, "asked", "host", None))
        self.assertEqual((giver["bytes"], giver["manager"]), (3 << 20, "given back"))
        self.assertEqual((hooked["operation"], hooked["bytes"], hooked["since"], hooked["hook"]), ("idle", None, None, "evict"))
        self.assertRegex(hooked["hook_since"], r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC$")
        for seconds in (asker["seconds"], giver["seconds"], hooked["hook_seconds"]):
            self.assertGreaterEqual(seconds, 0)
            self.assertLess(seconds, PATIENCE)

        deadline = time.monotonic() + PATIENCE  # below a tenth of a second the words are others
        while "asking" not in (text := self.run_command("ps", "--threads").stdout) and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertRegex(text, rf"at_work, pid {process.pid}, living\n")
        self.assertRegex(text, r"asker +asking host for 2 GiB for manager asked since [0-9.]+ (ms|s)\n")
        self.assertRegex(text, r"hooked +running hook evict since [0-9.]+ (ms|s) \(limit 1.0 s\)\n")
        self.assertNotIn("asker", self.run_command("ps").stdout)

        self.kill(process)
        dead = self.threads_of(process)
        self.assertEqual({name: thread["operation"] for name, thread in dead.items() if thread["operation"] != "idle"},
                         {"asker": "allocating", "giver": "freeing"})
        self.assertIsNone(dead["asker"]["seconds"], "nobody knows when it ended")
        self.assertRegex(dead["asker"]["since"], r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC$")
        text = self.run_command("ps", "--threads").stdout
        self.assertIn(f"pid {process.pid}, killed", text)
        self.assertRegex(text, r"DID\n")
        self.assertRegex(text, r"asker +asking host for 2 GiB for manager asked since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC\n")
        self.assertRegex(text, r"giver +giving 3 MiB back to host for manager given back since \d{4}-")
        self.assertRegex(text, r"hooked +running hook evict since \d{4}-")
        (file,) = self.flights.glob(f"*.{process.pid}.*.flight")
        checked = self.run_command("check", file)
        self.assertEqual(checked.returncode, 0, checked.stdout)

    def test_threads_at_rest_are_idle(self):
        process = self.start_command("replay", history("resnet"), "--stop-after", 4_000, "--hold", "1h")
        self.wait_for(process, "holding")
        (thread,) = self.threads_of(process).values()
        self.assertEqual((thread["thread"], thread["operation"], thread["doing"]), (process.pid, "idle", "idle"))
        self.assertTrue(re.search(r"headroom +idle\n", self.run_command("ps", "--threads").stdout))

    def test_who_waits_for_room(self):
        process = self.start_program(os.environ["HEADROOM_SLOW_DRIVER"], "waits", says="hanging")

        def waiting():
            (thread,) = self.threads_of(process).values()
            return thread
        deadline = time.monotonic() + PATIENCE
        while (thread := waiting())["operation"] != "waiting" and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual((thread["operation"], thread["bytes"], thread["manager"]), ("waiting", 800 << 20, "train"))
        self.assertLess(thread["seconds"], PATIENCE)
        self.assertRegex(thread["doing"], r"^waiting for room for 800 MiB for manager train since [0-9.]+ (ms|s)$")
        self.kill(process)
        self.assertRegex(waiting()["doing"], r"^waiting for room for 800 MiB for manager train since \d{4}-.* UTC$")


if __name__ == "__main__":
    unittest.main()
