"""Drives a Chromium without a screen for the tests of pages, with Python's standard library: its DevTools protocol over two pipes.

    with Browser() as browser:
        page = browser.open("http://127.0.0.1:9478/")
        page.wait_for("document.readyState === 'complete'")
        self.assertEqual(page.errors, [])

HEADROOM_CHROMIUM names the program; else what Debian and others call it is looked for in PATH.
"""
import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

PATIENCE = 240  # seconds until something that should happen soon has failed to happen, on a machine that has no time for it
# The least contrast between a text that can be seen and what is behind it, and where.
WORST_CONTRAST = """(() => {
  const rgb = colour => colour.match(/[\\d.]+/g).slice(0, 3).map(Number);
  const light = colour => rgb(colour).map(c => c / 255).map(c => c <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [.2126, .7152, .0722][i], 0);
  const behind = node => { for (; node; node = node.parentElement) {
    const colour = getComputedStyle(node).backgroundColor; if (!colour.endsWith(', 0)')) return colour; } return 'rgb(255,255,255)'; };
  const nodes = [...document.querySelectorAll('main *, header *')].filter(n => n.checkVisibility() &&
    [...n.childNodes].some(c => c.nodeType === 3 && c.textContent.trim()));
  return nodes.map(n => { const [a, b] = [light(getComputedStyle(n).color), light(behind(n))].sort((x, y) => y - x);
    return [(a + .05) / (b + .05), n.className + ' ' + n.textContent.slice(0, 40)]; }).sort((x, y) => x[0] - y[0])[0];
})()"""
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


def find_chromium():
    """Its path; None when there is none."""
    named = os.environ.get("HEADROOM_CHROMIUM")
    return named or next(filter(None, map(shutil.which, NAMES)), None)


def pipe_above(lowest):
    """A pipe whose descriptors do not get in the way of those that a child shall have."""
    ends = os.pipe()
    moved = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, lowest) for end in ends)
    for end in ends:
        os.close(end)
    return moved


class Browser:
    def __init__(self):
        self.profile = tempfile.TemporaryDirectory(prefix="headroom-browser-", ignore_cleanup_errors=True)
        to_browser, self.outgoing = pipe_above(10)
        self.incoming, from_browser = pipe_above(10)
        command = [find_chromium(), "--headless", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--no-first-run",
                   "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update", "--no-proxy-server",
                   f"--user-data-dir={self.profile.name}"]
        # Descriptors 3 and 4 are where it listens and speaks.
        self.process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{to_browser} 4>&{from_browser}', "bash", *command], pass_fds=(to_browser, from_browser),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        os.close(to_browser)
        os.close(from_browser)
        self.last_id = 0
        self.unread = b""
        self.answers = {}
        self.pages = {}  # by session

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        os.close(self.outgoing)  # which ends it
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.incoming)
        self.profile.cleanup()

    def open(self, url, before=()):
        """A page of its own; `before`: calls (method, parameters) made before it goes to the address."""
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        session = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        page = self.pages[session] = Page(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        for method, parameters in before:
            page.call(method, parameters)
        page.call("Page.navigate", {"url": url})
        page.wait_for("location.href !== 'about:blank' && document.readyState === 'complete'", while_it_loads=True)
        return page

    def call(self, method, parameters=None, session=None):
        self.last_id += 1
        mine = self.last_id
        message = {"id": mine, "method": method, "params": parameters or {}}
        if session:
            message["sessionId"] = session
        bytes_left = json.dumps(message).encode() + b"\0"
        while bytes_left:
            bytes_left = bytes_left[os.write(self.outgoing, bytes_left):]
        deadline = time.monotonic() + PATIENCE
        while mine not in self.answers:
            self.read(deadline)
        answer = self.answers.pop(mine)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def read(self, deadline):
        """Takes in what has come, and waits for something if nothing has."""
        ready, _, _ = select.select([self.incoming], [], [], max(0, deadline - time.monotonic()))
        chunk = os.read(self.incoming, 1 << 16) if ready else b""
        if not chunk:
            raise RuntimeError("the browser ended" if ready else f"the browser has not answered for {PATIENCE} s")
        *messages, self.unread = (self.unread + chunk).split(b"\0")
        for message in map(json.loads, messages):
            if "id" in message:
                self.answers[message["id"]] = message
            elif message.get("sessionId") in self.pages:
                self.pages[message["sessionId"]].note(message["method"], message["params"])


class Page:
    def __init__(self, browser, session):
        self.browser = browser
        self.session = session
        self.errors = []  # what the console shows in red or yellow, and what was thrown
        self.requests = []  # addresses, in order

    def call(self, method, parameters=None):
        return self.browser.call(method, parameters, self.session)

    def note(self, method, parameters):
        if method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            self.errors.append(str([one.get("value", one.get("description")) for one in parameters["args"]]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.errors.append(parameters["entry"]["text"] + " " + parameters["entry"].get("url", ""))

    def ask(self, expression):
        """The value of a JavaScript expression, which must be one that JSON can hold."""
        answer = self.call("Runtime.evaluate", {"expression": expression, "returnByValue": True, "awaitPromise": True})
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait_for(self, expression, while_it_loads=False):
        """Its value, as soon as that is true in JavaScript's eyes. While a page loads there may be none that could be asked."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                value = self.ask(expression)
            except RuntimeError:
                if not while_it_loads or self.browser.process.poll() is not None:
                    raise
                value = None
            if value:
                return value
            if time.monotonic() > deadline:
                raise AssertionError(f"never: {expression}\nerrors: {self.errors}\npage: {self.ask('document.body.innerText')}")
            time.sleep(0.05)

    def worst_contrast(self):
        return self.ask(WORST_CONTRAST)

    def press(self, key, code, text=""):
        for kind in ("keyDown" if text else "rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", {"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text})

    def type(self, text):
        self.call("Input.insertText", {"text": text})

    def prefer(self, scheme):
        self.call("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})

    def size(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600})

    def screenshot(self, path, whole=True):
        """Of all of the page, or of what its size shows."""
        data = self.call("Page.captureScreenshot", {"format": "png", "captureBeyondViewport": whole})["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))
