#!/usr/bin/env python3
"""The status page in a real Chromium: what it shows, that it asks nobody else for anything, and what it does when things go wrong.

HEADROOM_SERVED names the program that is looked at (served/main.cpp), HEADROOM_COMMAND the command. Without a Chromium: skipped, 77.
HEADROOM_SCREENSHOTS names a folder for pictures of what was tested.
"""
import contextlib
import copy
import http.server
import json
import os
import subprocess
import sys
import threading
import time
import unittest
import urllib.request

from browser import PATIENCE, Browser, find_chromium
from command_runner import CommandTest

SERVED = os.environ.get("HEADROOM_SERVED", "served")
MIB = 1 << 20
HOSTILE = "<img src=x onerror=bad()>\"'&"


def fetch(url, accept="*/*"):
    with urllib.request.urlopen(urllib.request.Request(url, headers={"Accept": accept}), timeout=PATIENCE) as answer:
        return answer.read().decode(), answer.headers


class StatusPage(CommandTest):
    @classmethod
    def setUpClass(cls):
        cls.browser = Browser()
        cls.addClassCleanup(cls.browser.close)

    def start_served(self, *arguments):
        process = subprocess.Popen([SERVED, *arguments], env=self.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL, text=True)
        self.end_with_test(process)
        self.addCleanup(process.stdin.close)
        port = int(process.stdout.readline())
        return process, f"http://127.0.0.1:{port}/"

    def open(self, url, **options):
        page = self.browser.open(url, **options)
        self.addCleanup(page.call, "Page.close")
        page.size(1280, 1400)
        return page

    def open_alive(self, url, **options):
        page = self.open(url, **options)
        page.wait_for("document.querySelector('#freshness').textContent === 'live'")
        return page

    def picture(self, page, name):
        if folder := os.environ.get("HEADROOM_SCREENSHOTS"):
            page.screenshot(f"{folder}/{name}.png")

    def state_when(self, url, good):
        """The state as soon as `good` says so: events are read a moment after they happened."""
        deadline = time.monotonic() + PATIENCE
        while True:
            state = json.loads(fetch(f"{url}api/state.json")[0], parse_constant=self.fail)
            if good(state):
                return state
            self.assertLess(time.monotonic(), deadline, json.dumps(state, indent=1))
            time.sleep(0.05)

    def complete_state(self, url):
        return self.state_when(url, lambda s: s["processes"] and len(s["processes"][0]["last_failures"]) == 3)

    # ── what it shows ──

    def test_figures_are_those_of_the_state_and_of_ps_and_of_the_program(self):
        process, url = self.start_served()
        state = self.complete_state(url)["processes"][0]
        (row,) = self.json_of("ps", "--json")
        for key in ("pid", "run", "program", "state", "budget_bytes", "allocated_bytes", "claimed_bytes", "peak_bytes", "live_allocations",
                    "pressure", "failures"):
            self.assertEqual(state[key], row[key], key)
        model, staging, hostile = state["managers"]
        self.assertEqual((model["name"], model["allocated_bytes"], model["peak_bytes"], model["budget_bytes"], model["remaining_bytes"]),
                         ("model", 900 * MIB, 950 * MIB, 1000 * MIB, 100 * MIB))
        self.assertEqual((staging["allocated_bytes"], staging["budget_bytes"], staging["remaining_bytes"]), (8 * MIB, None, None))
        self.assertEqual((hostile["allocated_bytes"], hostile["budget_bytes"]), (MIB, 2 * MIB))
        self.assertEqual(process.pid, state["pid"])

        page = self.open_alive(url)
        page.wait_for("document.querySelectorAll('.failures > li').length === 3")
        for manager in state["managers"]:
            card = f"document.querySelector('[data-manager=\"{manager['id']}\"]')"
            shown = {name: page.ask(f"{card}.querySelector('{where} data, data{where}').getAttribute('value')")
                     for name, where in (("allocated_bytes", "[data-name=allocated]"), ("claimed_bytes", "[data-name=claimed]"),
                                         ("peak_bytes", "[data-name=peak]"), ("live_allocations", "[data-name=live]"),
                                         ("failures", "[data-name=failures]"))}
            self.assertEqual(shown, {name: str(manager[name]) for name in shown}, manager["name"])
            tags = page.ask(f"[...{card}.querySelectorAll('tbody tr')].map(tr => [...tr.querySelectorAll('data')].map(d => d.value))")
            self.assertEqual(tags, [[str(tag["bytes"]), str(tag["at_peak_bytes"])] for tag in manager["tags"]["list"]])
        text = page.ask("document.body.innerText")
        for words in ("900 MiB", "of 1000 MiB in use (90 %)", "pressure medium", "950 MiB", "budget unlimited", "weights", "kv-cache",
                      "granted in the end", "failed for good", "failed at once", "hook 'evict cache' freed 150 MiB", "evict cache"):
            self.assertIn(words, text)
        self.assertEqual(page.errors, [])
        self.picture(page, "light")

    def test_ends_of_failures_are_told_apart(self):
        _, url = self.start_served()
        failures = self.complete_state(url)["processes"][0]["last_failures"]
        self.assertEqual([one["end"] for one in failures], ["failed", "gave_up", "recovered"])  # newest first
        self.assertEqual([one["requested_bytes"] for one in failures], [500 * MIB, 2000 * MIB, 100 * MIB])
        self.assertEqual([one["claimed_bytes"] for one in failures], [900 * MIB, 900 * MIB, 950 * MIB])

    def test_figures_follow_in_place(self):
        process, url = self.start_served("none")
        page = self.open_alive(url)
        said = "document.body.innerText.includes('has made no manager yet')"
        self.assertTrue(page.ask(said))
        process.stdin.write("\n")
        process.stdin.flush()
        self.assertEqual(process.stdout.readline(), "made\n")
        page.wait_for("document.querySelectorAll('[data-manager]').length === 3")
        self.assertFalse(page.ask(said))
        page.ask("document.querySelector('[data-manager]').mark = document.querySelector('[data-manager] tbody tr').mark = 7")
        received = page.ask("received")
        page.wait_for(f"received > {received}")
        page.wait_for("document.querySelectorAll('.failures > li').length === 3")
        self.assertEqual(page.ask("[document.querySelector('[data-manager]').mark, document.querySelector('[data-manager] tbody tr').mark]"),
                         [7, 7])
        self.assertEqual(page.errors, [])

    def test_asks_nobody_else_and_only_for_what_is_new(self):
        _, url = self.start_served()
        page = self.open_alive(url)
        first = page.ask("received")
        page.wait_for(f"received > {first} + 2500")
        self.assertGreater(len(page.requests), 3)
        for request in page.requests:
            self.assertTrue(request.startswith(url) or request.startswith("data:"), request)
        states = [request for request in page.requests if "api/state.json" in request]
        self.assertIn("since=0", states[0])
        self.assertNotIn("since=0", states[-1])
        self.assertEqual(page.errors, [])

    def test_the_policy_forbids_everything_from_elsewhere_and_whatever_is_put_in(self):
        _, url = self.start_served()
        html, headers = fetch(url, "text/html")
        policy = headers["Content-Security-Policy"]
        for words in ("default-src 'none'", "connect-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"):
            self.assertIn(words, policy)
        self.assertNotIn("unsafe", policy)
        self.assertNotIn("NONCE-OF-THIS-ANSWER", html)
        self.assertNotEqual(fetch(url, "text/html")[1]["Content-Security-Policy"], policy)
        page = self.open_alive(url)
        self.assertEqual(page.ask("""(() => { const s = document.createElement('script'); s.textContent = 'window.bad_ran = 1';
                                     document.body.append(s); return window.bad_ran || 0; })()"""), 0)
        self.assertEqual(page.ask("fetch('http://127.0.0.1:1/x').then(() => 'got', error => 'refused')"), "refused")
        self.assertTrue(any("Content Security Policy" in one for one in page.errors), page.errors)

    def test_hostile_names_stay_text(self):
        _, url = self.start_served()
        page = self.open_alive(url)
        page.wait_for("document.querySelectorAll('[data-manager]').length === 3")
        self.assertEqual(page.ask("[document.images.length, document.scripts.length, typeof window.bad]"), [0, 1, "undefined"])
        text = page.ask("document.querySelectorAll('[data-manager]')[2].innerText")
        self.assertIn(HOSTILE, text)
        self.assertIn("</script><script>bad()</script>", text)
        for control in "\u202e\u001b":
            self.assertNotIn(control, page.ask("document.documentElement.textContent"))
        self.assertEqual(page.errors, [])

    def test_light_and_dark_both_have_contrast(self):
        _, url = self.start_served()
        page = self.open_alive(url)
        page.wait_for("document.querySelectorAll('.failures > li').length === 3")
        grounds = []
        for scheme in ("light", "dark"):
            page.prefer(scheme)
            grounds.append(page.ask("getComputedStyle(document.body).backgroundColor"))
            worst, where = page.worst_contrast()
            self.assertGreaterEqual(worst, 4.5, f"{scheme}: {where}")  # WCAG 2, AA
        self.picture(page, "dark")
        self.assertNotEqual(*grounds)
        self.assertEqual(page.errors, [])

    def test_a_phone_needs_no_scrolling_sideways(self):
        _, url = self.start_served()
        page = self.open_alive(url)
        page.size(360, 740)
        page.wait_for("document.querySelectorAll('[data-manager]').length === 3")
        self.assertLessEqual(page.ask("document.documentElement.scrollWidth"), 360)
        self.picture(page, "phone")

    def test_a_keyboard_reaches_everything_and_reads_the_timeline(self):
        _, url = self.start_served()
        page = self.open_alive(url)
        page.wait_for("document.querySelectorAll('[data-manager]').length === 3")
        seen = []
        for _ in range(12):
            page.press("Tab", 9)
            seen.append(page.ask("document.activeElement.tagName + ' ' + (document.activeElement.getAttribute('aria-label') || document.activeElement.textContent)"))
            if seen[-1].startswith("svg "):
                break
        self.assertIn("BUTTON Pause", seen)
        self.assertIn("A metrics", seen)
        self.assertIn("BUTTON Show 1 min", seen)
        self.assertTrue(seen[-1].startswith("svg model: memory in use over the last"), seen)
        page.press("ArrowLeft", 37)
        self.assertRegex(page.ask("document.querySelector('.said').textContent"), r"^1 s ago: ")
        page.press("Escape", 27)
        self.assertEqual(page.ask("document.querySelector('.said').textContent"), "")
        unnamed = page.ask("""[...document.querySelectorAll('button, input, select, [role=meter], [role=img], [role=region]')]
          .filter(n => n.checkVisibility() && !n.getAttribute('aria-label') && !n.textContent.trim() && !(n.labels || []).length).length""")
        self.assertEqual(unnamed, 0)

    # ── when things go wrong ──

    def test_an_exporter_that_is_gone_is_said_and_its_last_figures_stay(self):
        process, url = self.start_served()
        page = self.open_alive(url)
        page.wait_for("document.querySelectorAll('[data-manager]').length === 3")
        self.kill(process)
        page.wait_for("document.body.classList.contains('old') && !document.querySelector('#banner').hidden")
        self.assertIn("does not answer", page.ask("document.querySelector('#banner').innerText"))
        self.assertTrue(page.ask("document.querySelector('#freshness').textContent").startswith("old: of "))
        self.assertEqual(page.ask("document.querySelector('[data-manager] data[data-name=allocated]').value"), str(900 * MIB))
        self.assertLess(float(page.ask("getComputedStyle(document.querySelector('.figures')).opacity")), 1)
        self.picture(page, "gone")

    def test_pause_keeps_still_and_goes_on(self):
        _, url = self.start_served()
        page = self.open_alive(url)
        page.ask("document.querySelector('#pause').click()")
        self.assertEqual(page.ask("[document.querySelector('#pause').textContent, document.querySelector('#pause').ariaPressed]"), ["Go on", "true"])
        page.wait_for("asking === null")
        received = page.ask("received")
        page.ask("new Promise(done => setTimeout(done, 1500))")
        self.assertEqual(page.ask("received"), received)
        page.ask("document.querySelector('#pause').click()")
        page.wait_for(f"received > {received}")
        self.assertEqual(page.errors, [])

    def test_the_past_of_a_manager_that_is_gone_is_dropped(self):
        _, url = self.start_served()
        page = self.open_alive(url)
        page.wait_for("histories.size === 3")
        page.ask("document.querySelector('#pause').click()")
        page.wait_for("asking === null")
        page.ask("(() => { histories.set(`${state.processes[0].id}/gone`, new Map()); histories.set('another/1', new Map()); })()")
        page.ask("document.querySelector('#pause').click()")
        page.wait_for("histories.size === 3")
        self.assertEqual(page.ask("[...histories.keys()].filter(id => id.endsWith('/gone') || id.startsWith('another')).length"), 0)
        self.assertEqual(page.errors, [])

    def test_a_share_of_nothing_is_a_number(self):
        _, url = self.start_served()
        page = self.open_alive(url)
        self.assertEqual(page.ask("[percent(0, 0), percent('0', '0'), percent(1, 0), percent(1, 3), percent(3, 3), percent(31, 3)]"),
                         ["0 %", "0 %", "more than tenfold", "33 %", "100 %", "more than tenfold"])

    # ── many processes ──

    def test_two_hundred_processes_are_a_list_that_opens(self):
        _, url = self.start_served()
        html, headers = fetch(url, "text/html")
        one = self.complete_state(url)
        machine = Machine(html, headers["Content-Security-Policy"], one)
        self.addCleanup(machine.close)
        page = self.open_alive(machine.url)
        self.assertEqual(page.ask("document.querySelectorAll('.process').length"), 200)
        self.assertEqual(page.ask("document.querySelectorAll('[data-manager]').length"), 0)
        self.assertEqual(page.ask("document.querySelector('#shown').textContent"), "200 processes")
        names = "[...document.querySelectorAll('.process .name')].map(n => n.textContent)"
        self.assertEqual(page.ask(names)[0], "program-199 · 1199")  # the fullest
        self.picture(page, "many")

        page.ask("document.querySelector('#filter').focus()")
        page.type("program-17 living")
        self.assertEqual(page.ask(names), [f"program-{n} · {1000 + n}" for n in (179, 178, 177, 176, 175, 174, 173, 172, 171, 170, 17)])
        page.ask("(() => { const s = document.querySelector('#sort'); s.value = 'program'; s.dispatchEvent(new Event('input')); })()")
        self.assertEqual(page.ask(names)[:3], ["program-17 · 1017", "program-170 · 1170", "program-171 · 1171"])
        page.ask("document.querySelector('.process .row').focus()")
        page.press("Enter", 13, "\r")
        self.assertEqual(page.ask("document.activeElement.getAttribute('aria-expanded')"), "true")
        page.wait_for("document.querySelectorAll('[data-manager]').length === 3")
        self.assertEqual(page.ask("document.querySelector('[aria-expanded=true] .name').textContent"), "program-17 · 1017")
        self.assertIn("1017-run", machine.asked[-1])
        page.ask("document.querySelector('[aria-expanded=true]').click()")
        self.assertEqual(page.ask("document.querySelectorAll('.process .body:not([hidden])').length"), 0)
        self.assertEqual(page.errors, [])


class Machine:
    """Serves the page as somebody would who knows two hundred processes, and details only of those that are asked for."""

    def __init__(self, html, policy, one):
        self.asked = []
        machine = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def do_GET(self):
                is_state = self.path.startswith("/below/a/path/api/state.json?")
                body = machine.state(self.path, one) if is_state else html.encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json" if is_state else "text/html; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                if not is_state:
                    self.send_header("Content-Security-Policy", policy)
                self.end_headers()
                with contextlib.suppress(ConnectionError):  # a page that has something newer to ask lets go of what it asked before
                    self.wfile.write(body)

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/below/a/path/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def state(self, path, one):
        self.asked.append(path)
        state = {**one, "serves": "machine", "processes": []}
        for number in range(200):
            process = copy.deepcopy(one["processes"][0])
            process.update(id=f"{1000 + number}-run", pid=1000 + number, program=f"program-{number}", claimed_bytes=number * MIB,
                           budget_bytes=200 * MIB)
            if process["id"] not in path:
                for details in ("managers", "devices", "hooks", "threads", "last_failures", "losses"):
                    del process[details]
            state["processes"].append(process)
        return json.dumps(state).encode()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


if __name__ == "__main__":
    if find_chromium() is None:
        print("skipped: there is no Chromium (chromium-headless-shell, or HEADROOM_CHROMIUM)")
        sys.exit(77)
    unittest.main()
