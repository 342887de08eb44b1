"""`marginax playground`: it says where it is, ends when it is told to, and names what is missing."""

import asyncio
import re
import signal
import subprocess
import sys

import pytest
from tests.playground.conftest import opened

from marginax.playground.server import Door
from marginax.playground.serving import listening_socket, serve


def test_a_missing_library_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "starlette", None)
    with (
        listening_socket("127.0.0.1", 0) as listening,
        pytest.raises(ModuleNotFoundError, match=r"pip install 'marginax\[playground\]'"),
    ):
        serve(listening, browser=False)


def test_another_address_than_loopback_is_refused_in_one_line():
    command = [sys.executable, "-m", "marginax.cli", "playground", "--no-browser", "--host", "0.0.0.0"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 1
    assert found.stderr.strip().startswith("error: host must be a loopback address")
    assert len(found.stderr.strip().splitlines()) == 1


@pytest.mark.slow
def test_the_command_serves_a_real_run_and_ends_by_ctrl_c():
    command = [sys.executable, "-m", "marginax.cli", "playground", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        found = re.match(r"http://127\.0\.0\.1:(\d+)/\?token=(\S+)", process.stdout.readline())
        assert found is not None

        async def use():
            async with opened(Door(int(found[1]), token=found[2])) as page:
                number = await page.run(lab="variational", example="coin", flips=[1.0])
                return (await page.until("done", "error", id=number, seconds=300))[-1]

        assert asyncio.run(use())["numbers"]["a"] == 2.0
        process.send_signal(signal.SIGINT)
        assert process.wait(60) in (0, 130)
        assert "Traceback" not in process.stderr.read()
