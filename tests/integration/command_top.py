"""`headroom top`: one frame as text, and a real terminal that is put back whatever ends the program."""
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
import unittest

from command_runner import COMMAND, DATA, PATIENCE, CommandTest

ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?1049l"


class Top(CommandTest):
    def hold(self, name, records, *arguments):
        process = self.start_command("replay", DATA / f"{name}.csv.xz", "--stop-after", records, "--hold", "1h", *arguments)
        self.wait_for(process, "holding")
        return process

    def once(self, *arguments):
        done = self.run_command("top", *arguments, "--once")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("\x1b", done.stdout, "no colours where there is no terminal")
        return done.stdout

    def test_one_frame_of_three_processes_of_which_one_was_killed(self):
        first = self.hold("resnet", 4_000, "--budget", "4GiB")
        second = self.hold("gpt2", 6_000, "--budget", "8GiB", "--hook", "cache:512MiB:1", "--policy", "fail")
        third = self.hold("vit_threads", 8_000, "--budget", "1GiB")
        self.kill(third)
        frame = self.once()
        for process in (first, second, third):
            self.assertIn(f" {process.pid} ", frame)
        self.assertIn("process 1 of 3", frame)
        self.assertIn("killed", frame)

        frame = self.once(first.pid)
        self.assertIn("2.91 GiB of 4 GiB (72 %)", frame)  # 3,129,743,888 B
        self.assertIn("peak 2.97 GiB  live 748", frame)
        self.assertIn(">32MiB", frame)
        frame = self.once(third.pid)
        self.assertIn("815 MiB of 1 GiB (79 %)", frame)  # 854,185,888 B
        self.assertIn("over_budget by manager", frame)
        frame = self.once(second.pid)
        self.assertIn("cache", frame)
        self.assertIn("hooks freed", frame)
        self.assertIn("HOOK", frame)

    def test_without_processes_it_says_so(self):
        self.assertIn("no flight files", self.once())

    def test_what_cannot_be_shown(self):
        for arguments, status, says in [(["999999999"], 3, "has left no flight file"), (["--every", "1ms"], 2, "at least 100ms"),
                                        (["--every", "soon"], 2, "soon"), ([], 3, "must be a terminal")]:
            done = self.run_command("top", *arguments)
            self.assertEqual((done.returncode, done.stdout), (status, ""), arguments)
            self.assertIn(says, done.stderr)

    # ── in a terminal ──

    def in_terminal(self, *arguments):
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self.addCleanup(os.close, ours)
        self.addCleanup(os.close, theirs)
        self.terminal, self.other_end, self.output = ours, theirs, b""
        self.settings = termios.tcgetattr(theirs)
        process = subprocess.Popen([COMMAND, "top", *map(str, arguments), "--every", "100ms"], stdin=theirs, stdout=theirs,
                                   stderr=theirs, env=self.environment(TERM="xterm"), start_new_session=True)

        def end():
            if process.poll() is None:
                process.kill()
            process.wait()
        self.addCleanup(end)
        self.wait_for_output(b"quit")
        self.assertIn(ENTER, self.output)
        self.assertEqual(termios.tcgetattr(theirs)[3] & (termios.ICANON | termios.ECHO), 0)
        return process

    def read_more(self):
        ready, _, _ = select.select([self.terminal], [], [], 0.05)
        if ready:
            self.output += os.read(self.terminal, 65536)

    def wait_for_output(self, words):
        deadline = time.monotonic() + PATIENCE
        while words not in self.output:
            self.assertLess(time.monotonic(), deadline, self.output[-2000:])
            self.read_more()

    def press(self, key, words):
        self.output = b""
        os.write(self.terminal, key)
        self.wait_for_output(words)

    def check_put_back(self, process, status=0):
        # Somebody must read what it still says, or it could wait for that for ever.
        deadline = time.monotonic() + PATIENCE
        while process.poll() is None:
            self.assertLess(time.monotonic(), deadline)
            self.read_more()
        self.read_more()
        self.assertEqual(process.returncode, status)
        self.assertIn(LEAVE, self.output)
        self.assertIn(b"\x1b[?25h", self.output, "the cursor is back")
        self.assertEqual(termios.tcgetattr(self.other_end), self.settings)

    def test_keys_and_a_good_end(self):
        first = self.hold("resnet", 4_000, "--budget", "4GiB")
        second = self.hold("gpt2", 6_000, "--budget", "8GiB")
        process = self.in_terminal()
        self.wait_for_output(b"process 1 of 2")
        self.press(b">", b"process 2 of 2")
        self.press(b">", b"process 1 of 2")
        self.press(b"<", b"process 2 of 2")
        self.press(b"t", b"by tag")
        self.press(b"a", b"by allocations")
        self.press(b"s", b"by size")
        self.press(b" ", b"paused")
        os.write(self.terminal, b"z")  # means nothing, and does nothing
        os.write(self.terminal, b"q")
        self.check_put_back(process)
        self.assertIsNone(first.poll())
        self.assertIsNone(second.poll())

    def test_signals_put_the_terminal_back(self):
        self.hold("resnet", 100)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            with self.subTest(number):
                process = self.in_terminal()
                process.send_signal(number)
                self.check_put_back(process)

    def test_a_crash_puts_the_terminal_back(self):
        self.hold("resnet", 100)
        process = self.in_terminal()
        process.send_signal(signal.SIGSEGV)
        self.check_put_back(process, -signal.SIGSEGV)

    def test_a_stop_gives_the_terminal_back_for_its_time(self):
        self.hold("resnet", 100)
        process = self.in_terminal()
        self.output = b""
        process.send_signal(signal.SIGTSTP)
        self.wait_for_output(LEAVE)
        deadline = time.monotonic() + PATIENCE
        while termios.tcgetattr(self.other_end) != self.settings:
            self.assertLess(time.monotonic(), deadline)
        self.output = b""
        # It stops itself a moment later; to be told to go on before that would be lost on it.
        while os.waitpid(process.pid, os.WUNTRACED | os.WNOHANG) == (0, 0):
            self.assertLess(time.monotonic(), deadline)
        process.send_signal(signal.SIGCONT)
        self.wait_for_output(ENTER)
        os.write(self.terminal, b"q")
        self.check_put_back(process)

    def test_a_process_that_ends_meanwhile_stays_on_the_screen(self):
        holder = self.hold("resnet", 4_000, "--budget", "4GiB")
        process = self.in_terminal(holder.pid)
        self.output = b""
        self.kill(holder)
        self.wait_for_output(b"killed")
        os.write(self.terminal, b"q")
        self.check_put_back(process)


if __name__ == "__main__":
    unittest.main()
