"""Workers: a cancel is told at once, the newest request wins, and who hangs or dies is replaced."""

import asyncio
import os
import random
import signal
import sys
import time

import pytest
from tests.playground.conftest import opened, serving

from marginax.playground.slots import Slot, Ticket


def test_a_worker_that_cannot_start_is_told_and_not_tried_for_ever():
    """A run starts one process; where that ends before it can compute, the next run tries again."""

    async def use():
        command = (sys.executable, "-c", "import sys; sys.stdin.readline(); sys.exit(3)")
        slot, told = Slot(command, patience=0.2), []
        for i in range(2):
            ticket = Ticket(i, "a", "fake", {}, told.append, asyncio.sleep)
            await slot.run(ticket)
            await asyncio.wait_for(ticket.ended.wait(), 30)
            while slot.num_replaced == i:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.3)
            assert slot.num_replaced == i + 1
        assert [message["type"] for message in told] == ["error", "error"]
        assert "no process can be started (exit code 3)" in told[0]["message"]
        await slot.close()

    asyncio.run(use())


def test_a_cancel_is_told_at_once_and_nothing_comes_after_it(served):
    async def use():
        async with opened(served[0]) as page:
            number = await page.run(num=10_000, seconds=0.5)
            await page.until("state", id=number)
            began = time.perf_counter()
            await page.say(type="cancel", slot="a")
            heard = await page.until("cancelled", id=number)
            assert time.perf_counter() - began < 0.3
            assert [message["type"] for message in heard].count("cancelled") == 1
            again = await page.run(num=2)
            heard = await page.until("done", id=again)
            assert {message["id"] for message in heard} == {again}

    asyncio.run(use())


def test_the_newest_request_of_a_slot_wins_and_slots_do_not_wait_for_each_other(served):
    async def use():
        async with opened(served[0]) as page:
            long = await page.run("b", num=10_000, seconds=0.2)
            numbers = [await page.run("a", num=2) for _ in range(5)]
            heard = await page.until("done", id=numbers[-1])
            ended = {message["id"]: message["type"] for message in heard if message["type"] in ("cancelled", "done")}
            assert ended == dict.fromkeys(numbers[:-1], "cancelled") | {numbers[-1]: "done"}
            await page.until("state", id=long)
            await page.say(type="cancel", slot="b")
            await page.until("cancelled", id=long)

    asyncio.run(use())


def test_a_page_that_is_closed_ends_its_runs_and_no_others(served):
    door, _ = served

    async def use():
        async with opened(door) as other:
            kept = await other.run("b", num=30, seconds=0.05)
            async with opened(door) as page:
                await page.run("a", num=10_000, seconds=0.1)
            number = await other.run("a", num=2)
            heard = await other.until("done", id=number)
            if not any(message["type"] == "done" and message["id"] == kept for message in heard):
                await other.until("done", id=kept)

    asyncio.run(use())


def test_a_worker_that_hangs_is_replaced_for_the_next_request():
    async def use(door):
        async with opened(door) as page:
            await page.until("done", id=await page.run(num=2))  # it has imported what it needs
            stuck = await page.run(do="hang")
            await asyncio.sleep(0.5)
            number = await page.run(num=2)
            heard = await page.until("done", "error", id=number)
            assert heard[-1]["type"] == "done"
            assert any(message["type"] == "cancelled" and message["id"] == stuck for message in heard)

    with serving(patience=0.5) as (door, slots):
        asyncio.run(use(door))
        assert slots[0].num_replaced == 1


def test_a_worker_that_dies_is_told_of_and_replaced():
    async def use(door, slots):
        async with opened(door) as page:
            number = await page.run(do="die")
            heard = await page.until("error", id=number)
            assert "exit code 7" in heard[-1]["message"]
            number = await page.run(num=10_000, seconds=0.1)
            await page.until("state", id=number)
            os.kill(slots[0].process_id, signal.SIGKILL)
            assert "signal 9" in (await page.until("error", id=number))[-1]["message"]
            number = await page.run(num=2)
            assert (await page.until("done", id=number))[-1]["type"] == "done"

    with serving() as (door, slots):
        asyncio.run(use(door, slots))
        assert slots[0].num_replaced == 2


def test_a_worker_that_has_grown_is_replaced_between_runs_and_no_run_is_lost():
    async def use(door):
        async with opened(door) as page:
            for _ in range(3):
                number = await page.run(num=2)
                assert (await page.until("done", "error", id=number))[-1]["type"] == "done"

    with serving(most_megabytes=1) as (door, slots):
        asyncio.run(use(door))
        assert slots[0].num_replaced >= 1


def test_an_error_of_a_lab_is_told_and_the_worker_goes_on(served):
    async def use():
        async with opened(served[0]) as page:
            number = await page.run(do="fail")
            found = (await page.until("error", id=number))[-1]
            assert found["message"] == "FloatingPointError: all chains became NaN"
            number = await page.run(num=2)
            await page.until("done", id=number)

    asyncio.run(use())


def test_workers_end_with_the_server():
    with serving() as (_, slots):
        deadline = time.monotonic() + 20
        while not all(slot.process_id for slot in slots) and time.monotonic() < deadline:
            time.sleep(0.05)
        numbers = [slot.process_id for slot in slots]
    for number in numbers:
        with pytest.raises(ProcessLookupError):
            os.kill(number, 0)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_random_runs_and_cancels_leave_no_worker_stuck(seed, request):
    """A hundred in the slow run: every run has exactly one last message, and the last of each slot is done."""
    rng, num = random.Random(seed), 100 if seed else 25
    lasts = ("done", "cancelled", "error")

    async def use(door):
        async with opened(door) as page:
            heard, asked = [], set()
            for _ in range(num):
                slot = rng.choice("ab")
                if rng.random() < 0.25:
                    await page.say(type="cancel", slot=slot)
                else:
                    do = rng.choices(["count", "fail", "die", "hang"], [12, 1, 1, 1])[0]
                    asked.add(await page.run(slot, do=do, num=rng.randint(1, 5), seconds=rng.choice([0.0, 0.05])))
                await asyncio.sleep(rng.choice([0.0, 0.02, 0.2]))
            final = {await page.run(slot, num=2) for slot in "ab"}
            open_runs = asked | final
            while open_runs:
                message = await page.hear(90)
                heard.append(message)
                if message["type"] in lasts:
                    assert message["id"] in open_runs
                    open_runs.discard(message["id"])
            ended = {message["id"]: message["type"] for message in heard if message["type"] in lasts}
            assert {ended[number] for number in final} == {"done"}

    with serving(patience=0.5) as (door, _):
        asyncio.run(use(door))


def test_a_slot_that_is_closed_before_it_began_has_nothing_to_end():
    asyncio.run(Slot().close())
