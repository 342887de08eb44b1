"""The page as a person uses it, in Chromium, against the real server and its workers."""

import ast
import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from tests.playground.conftest import PATIENCE, again, asking, finish, link_of, points_in, serving

from marginax.playground.labs import PLAYABLE
from marginax.playground.slots import COMMAND

QUICK = {
    "functions": "#functions?method=Laplace&chains=1&budget=0.05",
    "boundaries": "#boundaries?method=Laplace&chains=1&budget=0.05",
    "samplers": "#samplers?steps=50",
    "variational": "#variational?example=coin",
    "active": "#active?method=Laplace&budget=0.05",
}
pytestmark = pytest.mark.slow


def spot(canvas, across, down):
    box = canvas.bounding_box()
    return box["x"] + across * box["width"], box["y"] + down * box["height"]


def test_a_question_is_answered_and_the_table_has_what_python_gives(address, visitor, tmp_path):
    page = visitor(address + QUICK["functions"])
    finish(page)
    assert "y at x = 7" in page.inner_text("#reading")
    assert "epistemic" in page.inner_text("#reading")
    page.click("#numbers summary")
    cells = page.locator("#numbers td").evaluate_all("cells => cells.map((cell) => cell.dataset.value)")
    shown = [json.loads(cell) for cell in cells]
    page.click("#python")
    page.locator("#code[open]").wait_for()
    page.locator("#code-says", has_text="Copied").wait_for()
    text = page.inner_text("#code-text")
    assert page.evaluate("navigator.clipboard.readText()").strip() == text.strip()
    (tmp_path / "copied.py").write_text(text)
    numbers = runpy.run_path(str(tmp_path / "copied.py"))["numbers"]
    assert len(shown) == len(numbers) > 0
    for mine, theirs in zip(shown, numbers.values(), strict=True):
        assert mine == pytest.approx(theirs, rel=1e-4, abs=1e-6)


TEN = (
    "functions?budget=0.1",
    "functions?method=NUTS&data=own&points=0,1;1,3;2,2;4,5&likelihood=fixed&budget=0.05",
    "functions?method=Laplace&data=co2&ask=2022.5&likelihood=learned&budget=0.1",
    "functions?prior_only=true&activation=sin&hidden=10",
    "boundaries?budget=0.05",
    "boundaries?method=HMC&data=circles&beside=false&ask_x=2&seed=3&budget=0.05&hidden=10",
    "samplers?sampler=NUTS&target=network&step_size=0.3&steps=200",
    "samplers?sampler=ParallelTempering&target=two_modes&temperatures=4&steps=100",
    "variational?example=mixture&by=EM&components=3&iterations=10",
    "active?chosen=5,40&budget=0.1",
    "latent?task=complete&budget=0.05",
)


@pytest.mark.parametrize("state", TEN)
def test_copied_python_of_ten_states_prints_the_numbers_that_the_page_shows(
    address, visitor, data_dir, tmp_path, state
):
    page = visitor(f"{address}#{state}")
    finish(page)
    names = page.locator("#numbers tbody th").evaluate_all("all => all.map((one) => one.textContent)")
    cells = page.locator("#numbers td").evaluate_all("cells => cells.map((cell) => cell.dataset.value)")
    page.click("#python")
    page.locator("#code-says", has_text="Copied").wait_for()
    copied = tmp_path / "copied.py"
    copied.write_text(page.evaluate("navigator.clipboard.readText()"))
    surroundings = {**os.environ, "MARGINAX_DATA": str(data_dir)}
    done = subprocess.run([sys.executable, copied], capture_output=True, text=True, env=surroundings, check=False)
    assert done.returncode == 0, done.stderr
    printed = ast.literal_eval(done.stdout.strip().splitlines()[-1].replace("nan", "None"))
    assert {name.replace("_", " "): value for name, value in printed.items()} == dict(
        zip(names, map(json.loads, cells), strict=True)
    )


def test_points_are_added_moved_and_removed_by_mouse(address, visitor):
    page = visitor(address + QUICK["functions"])
    finish(page)
    canvas = page.locator("#picture canvas").first
    again(page, lambda: page.mouse.click(*spot(canvas, 0.3, 0.2)))
    added = points_in(page)
    assert len(added) == 11
    assert "data=own" in link_of(page)
    page.wait_for_timeout(600)
    x, y = spot(canvas, 0.3, 0.2)
    box = canvas.bounding_box()

    def drag():
        place = page.evaluate(SHOWN, [added[-1], 0])
        page.mouse.move(box["x"] + place[0], box["y"] + place[1])
        page.mouse.down()
        page.mouse.move(x + 40, y + 60, steps=5)
        page.mouse.up()

    again(page, drag)
    moved = points_in(page)
    assert moved[:-1] == added[:-1]
    assert moved[-1][0] > added[-1][0]
    assert moved[-1][1] < added[-1][1]
    page.wait_for_timeout(600)
    place = page.evaluate(SHOWN, [moved[-1], 0])
    again(page, lambda: page.mouse.dblclick(box["x"] + place[0], box["y"] + place[1]))
    assert points_in(page) == added[:-1]


SHOWN = """([[x, y], which]) => {
  const canvas = document.querySelectorAll("#picture canvas")[which];
  const view = JSON.parse(canvas.dataset.view);
  return [view.left + (x - view.x[0]) / (view.x[1] - view.x[0]) * (view.right - view.left),
          view.bottom - (y - view.y[0]) / (view.y[1] - view.y[0]) * (view.bottom - view.top)];
}"""


def test_points_are_added_moved_and_removed_by_keyboard_and_said_aloud(address, visitor):
    page = visitor(address + QUICK["functions"])
    finish(page)
    page.locator("#picture canvas").first.focus()
    page.keyboard.press("ArrowUp")
    again(page, lambda: page.keyboard.press("Enter"))
    added = points_in(page)
    assert len(added) == 11
    again(page, lambda: (page.keyboard.press("p"), page.keyboard.press("ArrowRight")))
    assert points_in(page)[-1][0] > added[-1][0]
    page.keyboard.press("n")
    assert "Point 1 of 11" in page.inner_text("#announce")
    again(page, lambda: page.keyboard.press("Delete"))
    assert points_in(page)[:9] == added[1:10]


def test_a_drag_waits_for_nobody_and_has_time_for_sixty_frames_a_second(address, visitor):
    page = visitor(address + QUICK["functions"])
    finish(page)
    asked = page.get_attribute("body", "data-asked")
    told = page.context.new_cdp_session(page)
    told.send("Performance.enable", {"timeDomain": "threadTicks"})  # of a core, whatever else the machine does
    before = _seconds(told)
    said = page.evaluate(DRAG, page.evaluate(SHOWN, [[7.0, 0.0], 0])[0])
    spent = _seconds(told) - before
    assert said > 30  # answers, from what is at hand
    assert page.get_attribute("body", "data-asked") == asked  # and none from the server
    assert 0 < spent / 90 < 1 / 60


DRAG = """async (x) => {
  const canvas = document.querySelector("#picture canvas"), box = canvas.getBoundingClientRect();
  const move = (kind, dx) => canvas.dispatchEvent(new PointerEvent(kind, {clientX: box.left + x + dx,
    clientY: box.top + 20, pointerId: 1, bubbles: true, pointerType: "mouse"}));
  canvas.setPointerCapture = () => {};
  move("pointerdown", 0);
  const said = new Set();
  for (let k = 1; k <= 90; k++) {
    move("pointermove", k);
    await new Promise(requestAnimationFrame);
    said.add(document.querySelector("#reading").textContent);
  }
  return said.size;
}"""


def _seconds(told):
    metrics = {each["name"]: each["value"] for each in told.send("Performance.getMetrics")["metrics"]}
    return metrics["TaskDuration"]


def test_a_small_table_is_read_and_a_bad_one_is_refused_in_a_sentence(address, visitor):
    page = visitor(address + QUICK["functions"])
    finish(page)
    table = {"name": "mine.csv", "mimeType": "text/csv", "buffer": b"x,y\n1,2\n2,3.5\n4,7\n"}
    again(page, lambda: page.set_input_files("#csv", table))
    assert points_in(page) == [[1, 2], [2, 3.5], [4, 7]]
    page.set_input_files("#csv", {**table, "buffer": b"x,y\n1,2\n2,three\n"})
    page.locator("#error", has_text="Row 2").wait_for()
    assert points_in(page) == [[1, 2], [2, 3.5], [4, 7]]


def test_two_methods_stand_side_by_side_and_a_link_brings_them_back(address, visitor):
    page = visitor(address + QUICK["functions"] + "&b.method=MAP")
    finish(page)
    assert page.locator("#picture figure b", has_text="Laplace").count() == 1
    assert page.locator("#picture figure b", has_text="MAP").count() == 1
    assert page.locator("#reading > div").count() == 2
    page.uncheck("#compare")
    assert "b.method" not in link_of(page)
    page.check("#compare")
    assert "b.method" in link_of(page)
    other = visitor(page.url)
    assert other.is_checked("#compare")
    assert other.input_value("#set-a-method") == "Laplace"


def test_a_run_is_cancelled_and_the_next_one_works(address, visitor):
    page = visitor(address + "#samplers?sampler=NUTS&steps=5000")
    page.locator("#status", has_text="step").wait_for()
    page.click("#cancel")
    page.locator("#status", has_text="Cancelled").wait_for()
    page.goto(address + QUICK["variational"])
    finish(page)


def test_samplers_move_and_say_whether_to_trust_them(address, visitor):
    page = visitor(address + QUICK["samplers"])
    finish(page)
    said = page.inner_text("#reading")
    assert "R-hat" in said
    assert "effective draws per gradient" in said
    assert "200 draws" in page.locator("#picture .unseen").first.text_content()
    again(page, lambda: page.select_option("#set-a-sampler", "NUTS"))
    assert "sampler=NUTS" in link_of(page)
    seen = page.locator("#picture canvas").first.screenshot()
    page.wait_for_timeout(500)
    assert page.locator("#picture canvas").first.screenshot() != seen  # moves are shown
    page.uncheck("#moving")
    page.wait_for_timeout(300)
    seen = page.locator("#picture canvas").first.screenshot()
    page.wait_for_timeout(500)
    assert page.locator("#picture canvas").first.screenshot() == seen


def test_points_have_classes_and_beliefs_are_read_under_the_pointer(address, visitor):
    page = visitor(address + QUICK["boundaries"])
    finish(page)
    canvas = page.locator("#picture canvas").nth(1)
    page.click("text=Class 1")
    again(page, lambda: page.mouse.click(*spot(canvas, 0.2, 0.2)))
    assert points_in(page)[-1][2] == 1
    page.mouse.move(*spot(canvas, 0.7, 0.7))
    page.wait_for_timeout(100)
    here = page.inner_text("#reading")
    page.mouse.move(*spot(canvas, 0.3, 0.3))
    page.wait_for_timeout(100)
    assert page.inner_text("#reading") != here
    assert "mutual information" in here.lower()


def test_a_coin_is_flipped_and_taken_back_flip_by_flip(address, visitor):
    page = visitor(address + QUICK["variational"])
    finish(page)
    num = page.locator(".flips b").count()
    again(page, lambda: page.click("text='Heads'"))
    assert page.locator(".flips b").count() == num + 1
    belief = page.inner_text("#reading strong >> nth=0")
    page.click("[aria-label='One state back']")
    assert page.locator(".flips b").count() == num
    assert page.inner_text("#reading strong >> nth=0") != belief


def test_bald_chooses_and_a_person_chooses(address, visitor):
    page = visitor(address + QUICK["active"])
    finish(page)
    again(page, lambda: page.click("text=Let BALD choose"))
    again(
        page,
        lambda: (page.locator("#picture canvas").first.focus(), page.keyboard.press("n"), page.keyboard.press("Enter")),
    )
    assert len(re.search(r"chosen=([^&]*)", link_of(page))[1].split(",")) == 2
    assert "Accuracy" in page.inner_text("#reading")


def test_a_digit_is_drawn_encoded_and_completed(address, visitor, data_dir):
    del data_dir  # the digits of the server come from there
    page = visitor(address + "#latent?budget=0.05")
    finish(page)
    again(page, lambda: page.mouse.click(*spot(page.locator("#picture canvas").first, 0.3, 0.3)))
    assert "z=" in link_of(page)
    pad = page.locator("canvas[aria-label^='Your digit']")

    def stroke(*places):
        page.mouse.move(*spot(pad, *places[0]))
        page.mouse.down()
        for place in places[1:]:
            page.mouse.move(*spot(pad, *place), steps=5)
        page.mouse.up()

    again(page, lambda: stroke((0.5, 0.2), (0.5, 0.8)))
    assert "task=encode" in link_of(page)
    assert "Its code is known to" in page.inner_text("#reading")
    page.click("button:has-text('Erase a part')")
    again(page, lambda: stroke((0.2, 0.7), (0.8, 0.7)))
    assert "task=complete" in link_of(page)
    assert page.locator("canvas[aria-label^=Completion]").count() == 8


def test_a_digit_is_drawn_by_keys_and_one_of_the_data_is_shown_where_none_is_drawn(address, visitor, data_dir):
    del data_dir  # the digits of the server come from there
    page = visitor(address + "#latent?budget=0.05&task=encode")
    finish(page)
    pad = page.locator("canvas[aria-label^='Your digit']")
    assert pad.evaluate(LIGHT) > 50  # the first of the test set, which is what was encoded
    page.click("text='Clear'")
    finish(page)
    assert pad.evaluate(LIGHT) == 0
    pad.focus()
    for _ in range(5):
        page.keyboard.press("Shift+ArrowDown")
    assert "row 24" in page.inner_text("#announce")
    again(page, lambda: page.keyboard.press(" "))
    drawn = re.search(r"digit=([^&]*)", link_of(page))[1].split(",")
    assert sum(float(x) > 0.5 for x in drawn) > 10


LIGHT = """(one) => {
  const copy = Object.assign(document.createElement("canvas"), {width: 28, height: 28});
  const ink = copy.getContext("2d", {willReadFrequently: true});
  ink.drawImage(one, 0, 0);
  return ink.getImageData(0, 0, 28, 28).data.filter((x, k) => k % 4 === 0 && x > 127).length;
}"""


def test_what_cannot_be_fitted_is_said_and_nothing_seems_to_run(address, visitor):
    page = visitor(address + QUICK["functions"])
    finish(page)
    again(page, lambda: page.click("text='Remove all'"))
    assert page.inner_text("#reading h2").startswith("The prior")
    with asking(page):
        page.mouse.click(*spot(page.locator("#picture canvas").first, 0.3, 0.4))
    page.locator("#error", has_text="at least 3").wait_for()
    assert page.inner_text("#status") == ""
    assert page.get_attribute("body", "data-running") == "0"


def test_every_picture_and_every_control_has_a_name_for_who_does_not_see_it(address, visitor):
    for lab in QUICK.values():
        page = visitor(address + lab)
        finish(page)
        assert page.locator("canvas:not([aria-label])").count() == 0
        assert page.evaluate(UNNAMED) == []


UNNAMED = """() => [...document.querySelectorAll("button, input, select, a[href], [tabindex='0'], summary")]
  .filter((one) => one.checkVisibility() && !(one.textContent.trim() || one.getAttribute("aria-label")
                   || one.labels?.length || one.title)).map((one) => one.outerHTML.slice(0, 120))"""


@pytest.mark.parametrize("lab", sorted(QUICK))
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_cut_off_on_a_phone(address, visitor, lab, scheme):
    page = visitor(address + QUICK[lab], width=390, height=844, scheme=scheme)
    finish(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.evaluate("document.documentElement.dataset.theme") == scheme
    assert page.locator("#picture canvas").evaluate_all(
        "all => all.every((one) => one.getBoundingClientRect().right <= 390)"
    )
    page.click("#theme")
    assert page.evaluate("document.documentElement.dataset.theme") != scheme


def test_the_picture_is_saved(address, visitor):
    page = visitor(address + QUICK["variational"])
    finish(page)
    with page.expect_download() as download:
        page.click("#save")
    content = Path(download.value.path()).read_bytes()
    assert content.startswith(b"\x89PNG")
    assert len(content) > 10_000


def test_a_lost_server_is_said(chromium):
    with serving(playable=PLAYABLE, command=COMMAND) as (door, _):
        page = chromium.new_page()
        page.goto(door.address + QUICK["variational"])
        page.locator("#connection[data-state=ready]").wait_for(timeout=PATIENCE)
    page.locator("#banner", has_text="lost").wait_for(timeout=PATIENCE)
    page.close()
