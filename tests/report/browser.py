"""Headless Chromium, driven from the command line: what a page looks like, says and asks for."""

import html
import json
import os
import re
import shutil
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path

import numpy as np

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "headless_shell")
_POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
_OUTSIDE = """<!doctype html><body style="margin: 0"><iframe width="{width}" height="900" srcdoc="{page}"></iframe>
<script>window.addEventListener("load", () => {{
  const page = document.querySelector("iframe").contentWindow, root = page.document.documentElement;
  const looks = page.getComputedStyle(page.document.body);
  document.documentElement.dataset.seen = JSON.stringify({{
    width: root.clientWidth, scroll_width: root.scrollWidth, ink: looks.color, paper: looks.backgroundColor,
    fetched: page.performance.getEntriesByType("resource").map((entry) => entry.name),
    cut: [...page.document.querySelectorAll("body *:not(svg *)")]
      .filter((each) => each.scrollWidth > each.clientWidth + 1 && each.clientWidth > 0)
      .map((each) => `${{each.tagName}}.${{each.className}}: ${{each.scrollWidth}} in ${{each.clientWidth}}`),
    scripts: page.document.scripts.length, pictures: page.document.querySelectorAll("svg").length,
  }});
}});</script>"""


def find_browser() -> str | None:
    """The path of a Chromium, or None. MARGINAX_CHROMIUM names one that is not on the path."""
    named = os.environ.get("MARGINAX_CHROMIUM")
    return named or next((found for name in NAMES if (found := shutil.which(name))), None)


@dataclass(frozen=True)
class Browser:
    """A browser without network, with a fresh profile."""

    program: str
    folder: Path

    def console(self, path: Path) -> list[str]:
        """Messages on the console while the page opens."""
        shown = self._run(path, "--enable-logging=stderr", "--v=0", "--dump-dom").stderr
        return [line for line in shown.splitlines() if ":CONSOLE" in line]

    def measure(self, path: Path, *, width: int, dark: bool = False) -> dict:
        """Sizes, colours, and what was fetched by a copy of the page that may fetch and run what it likes.

        A window has a least width, a frame has none: the copy is looked at in a frame.
        """
        copy = _POLICY.sub("", path.read_text(encoding="utf-8"))
        outside = self.folder / "outside.html"
        outside.write_text(_OUTSIDE.format(width=width, page=html.escape(copy)), encoding="utf-8")
        found = self._run(outside, "--dump-dom", "--window-size=1400,1000", "--hide-scrollbars", *_scheme(dark)).stdout
        seen = re.search(r'data-seen="([^"]*)"', found)
        assert seen is not None, "the page did not finish loading"
        return json.loads(html.unescape(seen[1]))

    def screenshot(self, path: Path, to: Path, *, width: int, height: int, dark: bool = False) -> np.ndarray:
        """What is seen, as an array (height, width, 3); also written to a file for people to look at."""
        from matplotlib import image

        self._run(path, f"--screenshot={to}", f"--window-size={width},{height}", "--hide-scrollbars", *_scheme(dark))
        return np.asarray(image.imread(to))[..., :3]

    def open(self, address: str, *, until: threading.Event, seconds: float) -> list[str]:
        """Messages on the console from opening an address of this machine until something has happened."""
        log = self.folder / "log.txt"
        with log.open("w") as file:
            command = self._command(address, "--enable-logging=stderr", "--v=0", *_scheme(dark=False))
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=file)
            try:
                assert until.wait(seconds), f"not done after {seconds} s"
            finally:
                process.terminate()
                process.wait()
        return [line for line in log.read_text(errors="replace").splitlines() if ":CONSOLE" in line]

    def _run(self, path: Path, *options: str) -> subprocess.CompletedProcess:
        command = self._command(path.resolve().as_uri(), *options)
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)

    def _command(self, address: str, *options: str) -> list[str]:
        return [
            self.program,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            f"--user-data-dir={self.folder / 'profile'}",
            *options,
            address,
        ]


def _scheme(dark: bool) -> tuple[str, ...]:
    return (f"--blink-settings=preferredColorScheme={0 if dark else 1}",)
