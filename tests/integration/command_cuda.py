"""`headroom replay --device cuda:N`: what it says where that device is not there, and that nothing else of the command goes near CUDA."""
import unittest

from command_runner import DATA, CommandTest

TRACE = DATA / "oom_batch.csv.xz"
MISSING = "cuda:4095"  # no machine has so many


class CommandCuda(CommandTest):
    def refused(self, *arguments, says):
        done = self.run_command("replay", *arguments)
        self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertIn(says, done.stderr)
        return done.stderr

    def loader_log(self, *arguments):
        """What the dynamic loader was asked for while the command ran."""
        log = self.folder / "loader"
        done = self.run_command(*arguments, environment=self.environment(LD_DEBUG="libs", LD_DEBUG_OUTPUT=str(log)))
        text = "".join(path.read_text(errors="replace") for path in self.folder.glob("loader.*"))
        for path in self.folder.glob("loader.*"):
            path.unlink()
        self.assertIn("find library=", text, "the loader writes no log here, so nothing can be shown")
        return done, text

    def test_names_of_devices(self):
        for text in ("cuda", "cuda:", "cuda:-1", "cuda:+1", "cuda:1x", "cuda: 1", "cuda:1.0", "cuda:99999999999", "CUDA:0", "gpu"):
            with self.subTest(text):
                self.refused(TRACE, f"--device={text}", says=f"--device '{text}'; expected host or cuda:N")

    def test_a_device_that_is_not_there(self):
        message = self.refused(TRACE, "--device", MISSING, says="headroom replay: ")
        self.assertRegex(message, "CUDA|driver|device")
        self.assertNotIn("  ", message)

    def test_a_history_that_cannot_be_read_is_told_before_any_device_is_asked_for(self):
        done = self.run_command("replay", self.folder / "missing.csv", "--device", MISSING)
        self.assertEqual(done.returncode, 3)
        self.assertIn("No such file", done.stderr)

    def test_options_of_the_other_kind_of_device(self):
        self.refused(TRACE, "--allocator", "async", says="--allocator 'async'; expected only with --device cuda:N")
        self.refused(TRACE, "--device", MISSING, "--allocator", "fast", says="--allocator 'fast'; expected async or direct")
        self.refused(TRACE, "--device", MISSING, "--device-total", "1GiB", says="--device-total '1GiB'; expected only with --device host")
        self.refused(TRACE, "--device", MISSING, "--budget", "half", says="--budget")

    def test_only_a_replay_on_a_gpu_looks_for_the_driver(self):
        done, log = self.loader_log("replay", TRACE, "--device", MISSING)
        self.assertEqual(done.returncode, 2)
        if "without the CUDA toolkit" not in done.stderr:
            self.assertIn("libcuda.so", log, "this is how the others would be found out")
        for arguments in (["ps"], ["ps", "--json"], ["summary", TRACE], ["replay", TRACE, "--json"], ["--version"]):
            with self.subTest(arguments):
                done, log = self.loader_log(*arguments)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual([line for line in log.splitlines() if "libcuda" in line], [])


if __name__ == "__main__":
    unittest.main()
