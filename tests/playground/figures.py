"""How fast the page is, in Chromium against the real server: `python -m tests.playground.figures`.

It prints seconds from opening a page to its first picture, with a server that was just started and with one that has
been used; seconds from asking for the second run of a method to its first posterior draw; and frames while dragging.
What was compiled before is found in JAX's cache on disk: the first use of the programme fills it.
"""

import argparse
import itertools
import time

from playwright.sync_api import Browser, Page, sync_playwright
from tests.playground.soak import PATIENCE, served
from tests.report.browser import find_browser

LABS = ("functions", "boundaries", "samplers", "variational", "active")
SEEN = """() => Number(document.body.dataset.asked) > 0
  && document.querySelector("#picture .unseen")?.textContent.length > 0"""
DRAG = """async () => {
  const canvas = document.querySelector("#picture canvas"), box = canvas.getBoundingClientRect();
  const view = JSON.parse(canvas.dataset.view);
  const x = view.left + (7 - view.x[0]) / (view.x[1] - view.x[0]) * (view.right - view.left);
  const move = (kind, dx) => canvas.dispatchEvent(new PointerEvent(kind, {clientX: box.left + x + dx,
    clientY: box.top + 20, pointerId: 1, bubbles: true, pointerType: "mouse"}));
  canvas.setPointerCapture = () => {};
  move("pointerdown", 0);
  const times = [];
  for (let k = 0; k < 240; k++) {
    move("pointermove", 100 * Math.sin(k / 20));
    times.push(await new Promise(requestAnimationFrame));
  }
  return times;
}"""


def opened(browser: Browser, address: str) -> tuple[Page, float]:
    """A page, and the seconds until it had its first picture."""
    page = browser.new_page()
    page.set_default_timeout(PATIENCE)
    began = time.perf_counter()
    page.goto(address, wait_until="commit")
    page.wait_for_function(SEEN)
    return page, time.perf_counter() - began


def finish(page: Page) -> None:
    """Until nothing runs any more."""
    page.locator("#status", has_text="done in").wait_for()
    page.locator("body[data-running='0']").wait_for()


def first_draw(page: Page) -> float:
    """Seconds from asking for a run to the first draw of its posterior that the page shows."""
    page.evaluate(
        """() => {
          window.first = null;
          const began = performance.now(), words = document.querySelector("#status");
          const watch = new MutationObserver(() => {
            const phase = /^(\\w+), step/.exec(words.textContent)?.[1];
            if (!(phase && phase !== "warmup") && !words.textContent.startsWith("done")) return;
            window.first = performance.now() - began;
            watch.disconnect();
          });
          watch.observe(words, {childList: true, characterData: true, subtree: true});
          document.querySelector("#run").click();
        }"""
    )
    page.wait_for_function("() => window.first !== null")
    finish(page)
    return page.evaluate("window.first") / 1000


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.playground.figures", description=__doc__)
    parser.add_argument("--methods", default="", help="separated by commas; all if left out")
    wanted = parser.parse_args().methods
    with sync_playwright() as started:
        options = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = started.chromium.launch(executable_path=find_browser(), args=options)
        with served() as (_, address):
            page, seconds = opened(browser, address)
            print(f"first picture of a server that was just started: {seconds:.2f} s", flush=True)
            finish(page)
            for lab in LABS:
                other, _ = opened(browser, f"{address}#{lab}")
                finish(other)
                other.close()
                other, seconds = opened(browser, f"{address}#{lab}")
                print(f"first picture of {lab}: {seconds:.2f} s", flush=True)
                other.close()
            page.bring_to_front()
            times = page.evaluate(DRAG)
            steps = sorted(b - a for a, b in itertools.pairwise(times))
            late = sum(step > 1000 / 60 * 1.5 for step in steps)
            rate = 1000 * len(steps) / sum(steps)
            said = f"{rate:.1f} frames per second, {late} of {len(steps)} late, longest {steps[-1]:.0f} ms"
            print(f"dragging: {said}", flush=True)
            methods = [m for m in wanted.split(",") if m] or page.locator("#set-a-method option").evaluate_all(
                "all => all.map((one) => one.value)"
            )
            for method in methods:
                if page.input_value("#set-a-method") != method:
                    asked = page.get_attribute("body", "data-asked")
                    page.select_option("#set-a-method", method)
                    page.wait_for_function("before => document.body.dataset.asked !== before", arg=asked)
                finish(page)
                print(f"first draw of the second run of {method}: {first_draw(page):.2f} s", flush=True)
        browser.close()


if __name__ == "__main__":
    main()
