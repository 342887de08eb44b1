"""Minutes at the page: memory stays bounded, every run ends; `python -m tests.playground.soak` goes on for an hour."""

import pytest
from tests.report.browser import find_browser

pytest.importorskip("playwright")

from tests.playground.soak import Row, Soak, soaked


@pytest.mark.slow
def test_minutes_at_the_page_leave_memory_bounded_and_every_run_ended():
    if find_browser() is None:
        pytest.skip("no Chromium on this machine")
    soak = soaked(1.5, seed=1, every=0.25)
    soak.check()
    assert soak.num_runs > 3


def row(minute, *, server=250.0, worker=900.0, page=4.0):
    return Row(minute, 10, server, [worker, 300.0], page)


def test_growth_is_noticed():
    Soak(rows=[row(minute) for minute in range(9)]).check()
    grown = {"server": 500.0, "page": 90.0, "worker": 9000.0}
    for name, megabytes in grown.items():
        with pytest.raises(AssertionError, match=f"{name}.*MB"):
            Soak(rows=[*(row(minute) for minute in range(9)), row(9, **{name: megabytes})]).check()
    with pytest.raises(AssertionError, match="Uncaught"):
        Soak(rows=[row(0)], said=["Uncaught TypeError"]).check()
