"""`headroom top`: one frame as text, and a real terminal that is put back whatever ends the program."""
import codecs
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
import unicodedata
import unittest

from command_runner import COMMAND, DATA, HEADER, PATIENCE, CommandTest

ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?1049l"
HOME = b"\x1b[H"
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
# What a terminal obeys, or what turns the direction of writing: none of it may come from a name.
COMMANDS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
MIB = 1 << 20


class Screen:
    """As much of a terminal without automatic line ends as `headroom top` uses; what would leave the screen is an error."""

    def __init__(self, columns, rows):
        self.columns, self.rows, self.lines, self.row, self.column = columns, rows, {}, 0, 0

    def feed(self, text):
        for token in re.findall(r"\x1b\[[?0-9;]*[A-Za-z]|\r\n|.", text, re.DOTALL):
            if token == "\x1b[H":
                self.row = self.column = 0
            elif token == "\x1b[K":
                self.lines[self.row] = self.lines.get(self.row, "")[:self.column]
            elif token == "\x1b[J":
                self.lines = {row: line for row, line in self.lines.items() if row < self.row}
            elif token == "\r\n":
                self.row, self.column = self.row + 1, 0
                assert self.row < self.rows, "it scrolls"
            elif token.startswith("\x1b["):
                assert token.endswith(("m", "h", "l")), repr(token)
            else:
                assert not COMMANDS.match(token), repr(token)
                width = 2 if unicodedata.east_asian_width(token) in "WF" else 1
                self.column += width
                assert self.column <= self.columns, f"line {self.row} is wider than {self.columns}"
                self.lines[self.row] = self.lines.get(self.row, "") + token


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

    def resize(self, rows, columns):
        fcntl.ioctl(self.other_end, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def in_terminal(self, *arguments, rows=40, columns=120, every="100ms", until=b"quit"):
        ours, theirs = pty.openpty()
        self.addCleanup(os.close, ours)
        self.addCleanup(os.close, theirs)
        self.terminal, self.other_end, self.output = ours, theirs, b""
        self.resize(rows, columns)
        self.settings = termios.tcgetattr(theirs)
        process = subprocess.Popen([COMMAND, "top", *map(str, arguments), "--every", every], stdin=theirs, stdout=theirs,
                                   stderr=theirs, env=self.environment(TERM="xterm"), start_new_session=True)

        def end():
            if process.poll() is None:
                process.kill()
            process.wait()
        self.addCleanup(end)
        self.wait_for_output(until)
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
        os.write(self.terminal, b"q")
        self.check_put_back(process)
        self.assertIsNone(first.poll())
        self.assertIsNone(second.poll())

    def frame_with(self, words):
        """The text of the first frame with these words that ends with the line of keys, or before the next."""
        self.wait_for_output(words)
        deadline = time.monotonic() + PATIENCE
        while True:
            frame = next(frame for frame in self.output.split(HOME) if words in frame)
            _, has_keys, keys = frame.partition(b"q quit")
            if (has_keys and b"allocations\x1b[0m" in keys) or frame != self.output.split(HOME)[-1]:
                return COLOURS.sub("", frame.decode())
            self.assertLess(time.monotonic(), deadline)
            self.read_more()

    def order_after(self, key, words):
        self.output = b""
        os.write(self.terminal, key)
        frame = self.frame_with(words)
        return re.findall(r"^(?:\x1b\[K)?  (1-32MiB|<1MiB|>32MiB) ", frame, re.MULTILINE)

    def test_keys_sort_the_tags(self):
        # 22 blocks above 32 MiB hold 1.5 GiB, 162 of 1 to 32 MiB 1.4 GiB, and hundreds of small ones a few MiB.
        holder = self.hold("resnet", 4_000)
        process = self.in_terminal(holder.pid)
        self.assertEqual(self.order_after(b"t", b"by tag"), ["1-32MiB", "<1MiB", ">32MiB"])
        self.assertEqual(self.order_after(b"a", b"by allocations"), ["<1MiB", "1-32MiB", ">32MiB"])
        self.assertEqual(self.order_after(b"s", b"by size"), [">32MiB", "1-32MiB", "<1MiB"])
        os.write(self.terminal, b"q")
        self.check_put_back(process)

    def pause(self):
        self.press(b" ", b"paused")
        self.frame_with(b"paused")
        self.output = b""

    def test_a_paused_display_stands_still_until_a_key_means_something(self):
        self.hold("resnet", 4_000)
        self.hold("gpt2", 6_000)
        process = self.in_terminal()
        self.wait_for_output(b"process 1 of 2")
        self.pause()
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            self.read_more()
        self.assertEqual(self.output, b"")
        os.write(self.terminal, b"zt")  # z means nothing: the one frame that comes is that of t
        self.assertIn("paused", self.frame_with(b"by tag"))
        self.assertEqual(self.output.count(HOME), 1)
        self.output = b""
        os.write(self.terminal, b">")
        self.assertIn("paused", self.frame_with(b"process 2 of 2"))
        self.press(b" ", b"process 2 of 2")
        self.assertNotIn(b"paused", self.output)
        os.write(self.terminal, b"q")
        self.check_put_back(process)

    def test_a_paused_display_is_drawn_again_after_a_stop_and_in_a_new_window(self):
        self.hold("resnet", 4_000)
        process = self.in_terminal()
        self.pause()
        self.resize(30, 100)
        process.send_signal(signal.SIGWINCH)
        self.frame_with(b"paused")
        self.output = b""
        process.send_signal(signal.SIGTSTP)
        self.wait_for_output(LEAVE)
        deadline = time.monotonic() + PATIENCE
        while os.waitpid(process.pid, os.WUNTRACED | os.WNOHANG) == (0, 0):
            self.assertLess(time.monotonic(), deadline)
        self.output = b""
        process.send_signal(signal.SIGCONT)
        self.wait_for_output(ENTER)
        self.frame_with(b"paused")
        os.write(self.terminal, b"q")
        self.check_put_back(process)

    def test_an_end_is_not_put_off_until_the_next_look(self):
        self.hold("resnet", 100)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            process = self.in_terminal(every="1h")
            process.send_signal(number)
            self.check_put_back(process)

    def screen_after_two_frames(self, columns, rows):
        deadline = time.monotonic() + PATIENCE
        while self.output.count(HOME) < 3:
            self.assertLess(time.monotonic(), deadline, self.output)
            self.read_more()
        screen = Screen(columns, rows)
        screen.feed(codecs.decode(self.output.rsplit(HOME, 1)[0]))
        return screen

    def test_nothing_leaves_a_narrow_screen(self):
        # Ideographs take two cells; with an odd number of columns one of them does not fit into what is left.
        self.hold("resnet", 4_000, "--budget", "4GiB", "--hook", "\u8a18\u61b6\u9ad4" * 6 + ":64MiB:1")
        for columns, rows in ((1, 1), (10, 3), (15, 30), (16, 30), (40, 12), (300, 60)):
            with self.subTest(columns=columns, rows=rows):
                process = self.in_terminal(rows=rows, columns=columns, until=HOME)
                screen = self.screen_after_two_frames(columns, rows)
                self.assertTrue(screen.lines[0].startswith("headroom top"[:columns]), screen.lines)
                self.assertLessEqual(len(screen.lines), rows)
                os.write(self.terminal, b"q")
                self.check_put_back(process)

    def test_a_name_commands_no_terminal(self):
        # ESC, and U+009B as UTF-8, which xterm obeys as it obeys ESC [; a bell; and what makes text run backwards.
        name = b"ev\x1b[2J\xc2\x9b2J\x07\xe2\x80\xaeil".decode()
        path = self.write("two.csv", HEADER + f"0,1,allocate,0xa,{100 * MIB},0\n0,2,allocate,0xb,{100 * MIB},0\n")
        holder = self.start_command("replay", path, "--budget", "192MiB", "--hook", name + ":128MiB:1", "--stop-after", 2,
                                    "--hold", "1h")
        self.wait_for(holder, "holding")
        for arguments in (["ps"], ["ps", "--threads"], ["top", "--once"], ["explain", holder.pid],
                          ["summary", next(self.flights.glob("*.flight"))]):
            done = self.run_command(*arguments)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIsNone(COMMANDS.search(done.stdout), (arguments, done.stdout))
            if arguments[0] != "ps":
                self.assertIn("ev [2J 2J  il", " ".join(done.stdout.split("\n")), arguments)
        process = self.in_terminal(holder.pid)
        self.screen_after_two_frames(120, 40)
        os.write(self.terminal, b"q")
        self.check_put_back(process)

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
