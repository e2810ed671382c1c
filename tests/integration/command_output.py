"""Where `headroom convert` writes to: files that are made or replaced as a whole, and whatever else a name may stand for."""
import os
import signal
import stat
import subprocess
import threading
import time
import unittest
from pathlib import Path

from command_runner import COMMAND, HEADER, PATIENCE, CommandTest

ONE_BLOCK = HEADER + "1,1,allocate,0x10,40,0x0\n"

IS_REACHABLE = all(folder.stat().st_mode & stat.S_IXOTH for folder in Path(COMMAND).resolve().parents)  # by every user


class Output(CommandTest):
    def setUp(self):
        super().setUp()
        self.source = self.write("some.csv", ONE_BLOCK)
        self.folded = self.expected("folded")

    def expected(self, form):
        done = self.run_command("convert", self.source, "--to", form, "-o", "-")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertTrue(done.stdout.endswith(" 40\n"))
        return done.stdout

    def convert(self, output, source=None, **options):
        command = [COMMAND, "convert", str(source or self.source), "--to", "folded", "-o", str(output)]
        return subprocess.run(command, env=self.environment(), text=True, timeout=300, stderr=subprocess.PIPE,
                              **{"stdout": subprocess.PIPE, **options})

    def leftovers(self):
        return [name for name in os.listdir(self.folder) if name.endswith(".tmp")]

    # ── into what is there ──

    def test_standard_output_by_another_name_is_nothing_but_the_data(self):
        for name in ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "/proc/thread-self/fd/1"):
            with self.subTest(name):
                done = self.convert(name)
                self.assertEqual((done.returncode, done.stdout, done.stderr), (0, self.folded, ""))

    def test_a_link_to_standard_output_is_standard_output(self):
        link = self.folder / "out"
        link.symlink_to("/dev/stdout")
        done = self.convert(link)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, self.folded, ""))
        self.assertTrue(link.is_symlink())

    def test_a_redirected_standard_output_is_written_on_from_where_it_stands(self):
        log = self.write("log", "before\n")
        for _ in range(2):
            with open(log, "a") as file:
                self.assertEqual(self.convert("/dev/stdout", stdout=file).returncode, 0)
        self.assertEqual(log.read_text(), "before\n" + 2 * self.folded)
        with open(log, "w") as file:  # not appending, but no longer at its beginning
            file.write("head\n")
            file.flush()
            self.assertEqual(self.convert("/dev/stdout", stdout=file).returncode, 0)
        self.assertEqual(log.read_text(), "head\n" + self.folded)

    def test_another_open_descriptor_is_written_into(self):
        log = self.write("log", "before\n")
        with open(log, "a") as file:
            done = self.convert(f"/dev/fd/{file.fileno()}", pass_fds=[file.fileno()])
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        self.assertEqual(log.read_text(), "before\n" + self.folded)

    def test_a_descriptor_that_is_not_open_is_said(self):
        done = self.convert("/dev/fd/77")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("/dev/fd/77: cannot be opened: Bad file descriptor", done.stderr)

    def test_a_pipe_with_a_name_is_written_into_and_nothing_is_made(self):
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        read = []
        reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
        reader.start()
        done = self.convert(pipe)
        reader.join()
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        self.assertEqual(read, [self.folded])
        self.assertTrue(stat.S_ISFIFO(pipe.stat().st_mode))

    def test_of_a_device_it_is_not_said_that_it_was_written(self):
        done = self.convert("/dev/null")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    # ── a file of its own ──

    def test_a_file_that_is_replaced_keeps_its_mode_whatever_the_umask(self):
        for mode in (0o600, 0o640, 0o664, 0o666):
            file = self.write("there", "old")
            file.chmod(mode)
            done = self.convert(file, umask=0o022)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertTrue(done.stdout.startswith(f"wrote {file} ("))
            self.assertEqual(stat.S_IMODE(file.stat().st_mode), mode)
            self.assertEqual(file.read_text(), self.folded)

    def test_a_new_file_has_the_mode_that_the_umask_leaves(self):
        for umask, mode in ((0o022, 0o644), (0o077, 0o600), (0o002, 0o664)):
            file = self.folder / f"new{umask}"
            self.assertEqual(self.convert(file, umask=umask).returncode, 0)
            self.assertEqual(stat.S_IMODE(file.stat().st_mode), mode)

    @unittest.skipUnless(os.geteuid() == 0, "only root gives files away")
    def test_a_file_that_is_replaced_keeps_its_owner(self):
        file = self.write("theirs", "old")
        file.chmod(0o640)
        os.chown(file, 12_345, 23_456)
        self.assertEqual(self.convert(file).returncode, 0)
        now = file.stat()
        self.assertEqual((now.st_uid, now.st_gid, stat.S_IMODE(now.st_mode)), (12_345, 23_456, 0o640))
        self.assertEqual(file.read_text(), self.folded)

    @unittest.skipUnless(os.geteuid() == 0 and IS_REACHABLE,
                         "only root becomes somebody else, who must reach the command")
    def test_who_cannot_keep_the_group_gives_its_rights_to_no_other(self):
        self.folder.chmod(0o777)
        file = self.write("theirs", "old")
        os.chown(file, 0, 23_456)
        for before, after in ((0o660, 0o600), (0o664, 0o644), (0o666, 0o666)):
            os.chown(file, 0, 23_456)
            file.chmod(before)
            done = self.convert(file, user=12_345, group=12_345, extra_groups=[])
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual((file.stat().st_gid, stat.S_IMODE(file.stat().st_mode)), (12_345, after))

    def test_a_link_to_nothing_makes_what_it_names(self):
        (self.folder / "deep").mkdir()
        first, second = self.folder / "first", self.folder / "deep" / "second"
        first.symlink_to("deep/second")
        second.symlink_to("../target")
        done = self.convert(first)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(first.is_symlink() and second.is_symlink())
        self.assertEqual((self.folder / "target").read_text(), self.folded)
        self.assertFalse((self.folder / "target").is_symlink())

    def test_links_in_a_circle_are_said(self):
        one, two = self.folder / "one", self.folder / "two"
        one.symlink_to(two)
        two.symlink_to(one)
        done = self.convert(one)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("Too many levels of symbolic links", done.stderr)
        self.assertTrue(one.is_symlink() and two.is_symlink())

    # ── ended half-way ──

    def under_way(self, output, **options):
        """A conversion that has made its temporary file and waits for the rest of its input."""
        process = subprocess.Popen([COMMAND, "convert", "-", "--to", "folded", "-o", str(output)], env=self.environment(),
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, **options)
        self.end_with_test(process)
        self.addCleanup(process.stdin.close)
        process.stdin.write(ONE_BLOCK.encode())
        process.stdin.flush()
        deadline = time.monotonic() + PATIENCE
        while not self.leftovers():
            self.assertLess(time.monotonic(), deadline, "no temporary file")
            self.assertIsNone(process.poll())
            time.sleep(0.01)
        return process

    def test_a_signal_leaves_no_temporary_file_and_what_was_there(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.subTest(number):
                file = self.write("there", "old")
                # Who runs in the background of a script may have been told to ignore it.
                process = self.under_way(file, preexec_fn=lambda: signal.signal(number, signal.SIG_DFL))
                process.send_signal(number)
                self.assertEqual(process.wait(), -number)
                self.assertEqual(self.leftovers(), [])
                self.assertEqual(file.read_text(), "old")

    def test_a_signal_that_is_ignored_stays_so(self):
        file = self.folder / "new"
        process = self.under_way(file, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        process.send_signal(signal.SIGHUP)
        process.stdin.close()
        self.assertEqual(process.wait(), 0)
        self.assertEqual(self.leftovers(), [])
        self.assertTrue(file.read_text().endswith(" 40\n"))

    # ── names of its own ──

    def test_a_name_that_was_taken_meanwhile_is_left_alone(self):
        """By somebody else, while the conversion waits for its input."""
        pipe, taken = self.folder / "late.csv", self.folder / "late.folded"
        os.mkfifo(pipe)
        process = subprocess.Popen([COMMAND, "convert", "late.csv", "--to", "folded"], env=self.environment(), cwd=self.folder,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.end_with_test(process)
        self.addCleanup(process.stderr.close)
        with open(pipe, "w") as file:
            file.write(ONE_BLOCK)
            file.flush()
            deadline = time.monotonic() + PATIENCE
            while not self.leftovers():
                self.assertLess(time.monotonic(), deadline, "no temporary file")
                self.assertIsNone(process.poll())
                time.sleep(0.01)
            taken.write_text("mine")
            (self.folder / "late.2.folded").symlink_to("nowhere")
        self.assertEqual(process.wait(), 0, process.stderr.read())
        self.assertTrue(process.stdout.read().startswith("wrote late.3.folded ("))
        self.assertEqual(taken.read_text(), "mine")
        self.assertTrue((self.folder / "late.2.folded").is_symlink())
        self.assertTrue((self.folder / "late.3.folded").read_text().endswith(" 40\n"))
        self.assertEqual(self.leftovers(), [])

    def test_conversions_at_the_same_time_each_have_a_file(self):
        count = 8
        command = [COMMAND, "convert", str(self.source), "--to", "json"]
        processes = [subprocess.Popen(command, env=self.environment(), cwd=self.folder, stdout=subprocess.PIPE, text=True)
                     for _ in range(count)]
        for process in processes:
            self.end_with_test(process)
        said = set()
        for process in processes:
            said.add(process.stdout.read().split(" (")[0])
            self.assertEqual(process.wait(), 0)
        self.assertEqual(said, {"wrote some.json", *(f"wrote some.{number}.json" for number in range(2, count + 1))})
        self.assertEqual(len({(self.folder / name.removeprefix("wrote ")).read_text() for name in said}), 1)


if __name__ == "__main__":
    unittest.main()
