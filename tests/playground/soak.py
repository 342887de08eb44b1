"""An hour at the page: one run after another in Chromium, some cancelled, and what memory all of it takes.

    python -m tests.playground.soak --minutes 60

starts `marginax playground` as a person would, visits its labs at random, and prints a row each minute. It fails where
the server or the page grows, where a worker has more than is allowed, where a run does not end, and where the console
says an error.
"""

import argparse
import contextlib
import json
import random
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright
from tests.report.browser import find_browser

from marginax.playground.slots import MOST_MEGABYTES

PATIENCE = 240_000  # milliseconds of a run: one may have to wait for compilation
MOST_GROWTH = {"server": 100, "page": 60}  # megabytes after the first third
MOST_OF_A_RUN = 1500  # megabytes that a worker may take beyond its bound, until it has nothing to do
SMALL = {"budget": (0.02, 0.1), "steps": (25, 300), "iterations": (1, 20), "chains": (1, 2), "particles": (1, 8)}
SHARE_CANCELLED, SHARE_BESIDE = 0.2, 0.15


@dataclass
class Row:
    """What is at one time: minutes, runs so far, megabytes of the server, of its workers, of the page's objects."""

    minute: float
    runs: int
    server: float
    workers: list[float]
    page: float

    def __str__(self) -> str:
        workers = ", ".join(f"{each:.0f}" for each in self.workers)
        done = f"{self.minute:5.1f} min {self.runs:5} runs"
        return f"{done}   server {self.server:.0f}   workers {workers}   page {self.page:.1f} MB"


@dataclass
class Soak:
    """What was done and seen."""

    rows: list[Row] = field(default_factory=list)
    num_runs: int = 0
    num_cancelled: int = 0
    num_refused: int = 0
    said: list[str] = field(default_factory=list)

    def check(self) -> None:
        """Raises where memory is not bounded, or something went wrong."""
        assert self.said == [], self.said[:5]
        begun = self.rows[len(self.rows) // 3]
        for name, most in MOST_GROWTH.items():
            grown = max(getattr(row, name) for row in self.rows) - getattr(begun, name)
            assert grown <= most, f"the {name} grew by {grown:.0f} MB, at most {most} were expected"
        worker = max(max(row.workers, default=0.0) for row in self.rows)
        assert worker <= MOST_MEGABYTES + MOST_OF_A_RUN, f"a worker had {worker:.0f} MB"


def megabytes(process: int) -> float:
    """Resident memory of a process now; 0 where it has ended."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
    return 0.0


def children(process: int) -> list[int]:
    """Processes that a process has started."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        tasks = Path(f"/proc/{process}/task").iterdir()
        return [int(each) for task in tasks for each in (task / "children").read_text().split()]
    return []


def link(lab: dict[str, Any], rng: random.Random, labs_with_methods: tuple[str, ...]) -> str:
    """Some settings of a lab, as the address of the page has them."""
    chosen: dict[str, str] = {}
    for setting in lab["settings"]:
        name, kind = setting["name"], setting["kind"]
        if name in SMALL:
            low, high = SMALL[name]
            low, high = max(low, setting["least"]), min(high, setting["most"])
            value = rng.uniform(low, high)
            chosen[name] = str(round(value) if kind == "integer" else round(value, 3))
        elif rng.random() < 0.3 and kind == "choice":
            chosen[name] = rng.choice(setting["choices"])["value"]
        elif rng.random() < 0.2 and name in ("seed", "step_size", "correlation", "ask", "components", "temperature"):
            value = rng.uniform(max(setting["least"], -20), min(setting["most"], 20))
            chosen[name] = str(round(value) if kind == "integer" else round(value, 3))
    if chosen.get("data") == "own":
        values = [[rng.uniform(-2, 2), rng.uniform(-2, 2), i % 2] for i in range(8)]
        num = next(setting["columns"] for setting in lab["settings"] if setting["name"] == "points")
        chosen["points"] = ";".join(",".join(f"{x:.3f}" for x in value[:num]) for value in values)
    if lab["name"] in labs_with_methods and rng.random() < SHARE_BESIDE:
        key = "sampler" if lab["name"] == "samplers" else "method"
        setting = next(setting for setting in lab["settings"] if setting["name"] == key)
        chosen[f"b.{key}"] = rng.choice(setting["choices"])["value"]
    return f"#{lab['name']}?" + "&".join(f"{name}={value}" for name, value in chosen.items())


def visit(page: Page, fragment: str, rng: random.Random, soak: Soak) -> None:
    """Ask for a state, and wait for its end or cancel it."""
    asked = int(page.get_attribute("body", "data-asked") or 0)
    page.evaluate("fragment => { location.hash = fragment; }", fragment)
    page.wait_for_function("n => Number(document.body.dataset.asked) > n", arg=asked, timeout=PATIENCE)
    if rng.random() < SHARE_CANCELLED:
        page.wait_for_timeout(rng.uniform(0, 1500))
        if page.locator("#cancel").is_enabled():
            page.locator("#cancel").click(timeout=PATIENCE, force=True)
            soak.num_cancelled += 1
    page.locator("body[data-running='0']").wait_for(timeout=PATIENCE)
    soak.num_refused += page.locator("#error").is_visible()
    soak.num_runs += 1


@contextlib.contextmanager
def served() -> Iterator[tuple[int, str]]:
    """`marginax playground`: its process and its address."""
    command = [sys.executable, "-m", "marginax.cli", "playground", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.pid, process.stdout.readline().strip()
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)


def soaked(minutes: float, *, seed: int = 0, every: float = 1.0) -> Soak:
    """Use the page for so long.

    Args:
        minutes: of use.
        seed: of what is done.
        every: minutes between two rows.
    """
    rng, soak, began, last = random.Random(seed), Soak(), time.monotonic(), -1e9
    with served() as (process, address), sync_playwright() as started:
        with urllib.request.urlopen(address.replace("/?", "/labs.json?")) as answer:
            labs = json.load(answer)["labs"]
        options = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = started.chromium.launch(executable_path=find_browser(), args=options)
        page = browser.new_page()
        page.on("console", lambda message: soak.said.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: soak.said.append(str(error)))
        page.goto(address)
        told = page.context.new_cdp_session(page)
        while time.monotonic() - began < 60 * minutes:
            lab = rng.choice(labs)
            visit(page, link(lab, rng, ("functions", "boundaries", "samplers")), rng, soak)
            now = (time.monotonic() - began) / 60
            if now - last >= every or now >= minutes:
                last = now
                told.send("HeapProfiler.collectGarbage")
                heap = told.send("Runtime.getHeapUsage")["usedSize"] / 2**20
                workers = [megabytes(child) for child in children(process)]
                soak.rows.append(Row(now, soak.num_runs, megabytes(process), workers, heap))
                print(soak.rows[-1], flush=True)
        browser.close()
    return soak


def main() -> None:
    """Use the page, print rows, fail where memory is not bounded."""
    parser = argparse.ArgumentParser(prog="python -m tests.playground.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    soak = soaked(given.minutes, seed=given.seed)
    print(f"{soak.num_runs} runs, {soak.num_cancelled} cancelled, {soak.num_refused} ended by an error that was told")
    soak.check()


if __name__ == "__main__":
    main()
