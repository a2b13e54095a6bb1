"""A real browser, driven through the W3C's WebDriver protocol by Debian's chromium-driver: standard
library only."""

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request

import pytest

#: Keys without a character.
KEYS = {"left": "\ue012", "up": "\ue013", "right": "\ue014", "down": "\ue015", "home": "\ue011"}
KEYS["enter"] = "\ue007"


class Browser:
    """A window of headless chromium; skips the test where there is no chromium or no driver.

    Examples
    --------
    >>> with Browser(folder, 1280, 900) as browser:  # doctest: +SKIP
    ...     browser.open(path)
    ...     browser.run("return document.title")
    """

    def __init__(self, folder, width, height, dark=False):
        found = [shutil.which(name) for name in ("chromium", "chromedriver")]
        if None in found:
            pytest.skip("no browser: apt-get install chromium chromium-driver")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._at = f"http://127.0.0.1:{port}"
        self._driver = subprocess.Popen(
            [found[1], f"--port={port}", "--silent"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "TMPDIR": str(folder)},
        )
        words = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        words += [f"--user-data-dir={folder}/profile-{port}", f"--window-size={width},{height}"]
        words += ["--force-dark-mode"] * dark
        options = {"binary": found[0], "args": words}
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        try:
            self._wait()
            made = self._post("/session", {"capabilities": {"alwaysMatch": wanted}})
            self._at += f"/session/{made['sessionId']}"
            self.size(width, height)
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        try:
            if "/session/" in self._at:
                self._send("DELETE", "")
        finally:
            self._driver.terminate()
            self._driver.wait(timeout=20)

    def size(self, width, height, sharp=1):
        """Set the size of the screen, that of a phone if it is narrow; ``sharp`` pixels a point."""
        screen = {"width": width, "height": height, "deviceScaleFactor": sharp}
        self._cdp("Emulation.setDeviceMetricsOverride", **screen, mobile=width < 600)

    def dark(self, dark=True):
        """Set the colour scheme that the system prefers."""
        like = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._cdp("Emulation.setEmulatedMedia", features=[like])

    def open(self, path):
        """Open a file and wait until its script has drawn, 60 s at most."""
        self._post("/url", {"url": path.as_uri()})
        self.wait_for("return document.documentElement.dataset.drawn")

    def show(self, path, query=""):
        """Open a file of others, and wait until it has loaded, 60 s at most."""
        self._post("/url", {"url": path.as_uri() + query})
        self.wait_for("return document.readyState == 'complete'")

    def run(self, script, *arguments):
        """The result of a script in the page."""
        return self._post("/execute/sync", {"script": script, "args": list(arguments)})

    def wait_for(self, script):
        """The result of a script in the page, once it is true, or after 60 s."""
        until = time.monotonic() + 60
        while not (found := self.run(script)) and time.monotonic() < until:
            time.sleep(0.02)
        return found

    def rest(self):
        """Wait until the page has scrolled and drawn."""
        frames = (
            "requestAnimationFrame(() => requestAnimationFrame(() => { window.rests = true; }))"
        )
        self.run(f"window.rests = false; {frames}")
        self.wait_for("return window.rests")

    def press(self, *keys):
        """Press keys one after another, each by its name or its character."""
        values = [KEYS.get(key, key) for key in keys for _ in range(2)]
        kinds = ("keyDown", "keyUp") * len(keys)
        presses = [{"type": kind, "value": value} for kind, value in zip(kinds, values)]
        self._post("/actions", {"actions": [{"type": "key", "id": "keys", "actions": presses}]})

    def point(self, by, x, y, press=False):
        """Move the mouse to a place in the window, and press there, or tap it."""
        move = {"type": "pointerMove", "duration": 0, "x": x, "y": y}
        down, up = ({"type": kind, "button": 0} for kind in ("pointerDown", "pointerUp"))
        actions = [move, down, up] if press or by == "touch" else [move]
        pointer = {"type": "pointer", "id": by, "parameters": {"pointerType": by}}
        self._post("/actions", {"actions": [{**pointer, "actions": actions}]})

    def complaints(self):
        """Messages of the console since the last call."""
        return [each["message"] for each in self._post("/se/log", {"type": "browser"})]

    def cpu_s(self):
        """CPU seconds of the page, without those of other processes; call it before and after."""
        self._cdp("Performance.enable", timeDomain="threadTicks")
        found = self._cdp("Performance.getMetrics")["metrics"]
        return next(each["value"] for each in found if each["name"] == "TaskDuration")

    def _cdp(self, name, **values):
        return self._post("/goog/cdp/execute", {"cmd": name, "params": values})

    def _wait(self):
        for _ in range(200):
            try:
                return self._send("GET", "/status")
            except OSError:
                time.sleep(0.1)
        raise TimeoutError("chromedriver does not answer")

    def _post(self, where, values):
        return self._send("POST", where, json.dumps(values).encode())

    def _send(self, method, where, data=None):
        request = urllib.request.Request(self._at + where, data, method=method)
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=100) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read().decode()) from None
