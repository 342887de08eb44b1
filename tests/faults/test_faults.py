"""A small part of `make faults`: nothing lost, nothing wrong, every refusal in one line."""

import pytest
from tests.faults.__main__ import table
from tests.faults.cell import run_cell

CELLS = [
    ("crash", "mala", 12),
    ("crash", "saved", 6),
    ("crash", "estimator", 4),
    ("full", "mala", 3),
    ("forbidden", "mala", 2),
    ("damage", "mala", 12),
    ("links", "mala", 4),
    ("removal", "mala", 3),
    ("signals", "mala", 3),
    ("killed", "mala", 1),
    ("rivals", "mala", 1),
    ("fuzz", "mala", 60),
]


@pytest.mark.parametrize(("attack", "work", "num"), CELLS)
def test_nothing_is_lost_and_nothing_is_wrong(attack, work, num):
    cell = run_cell(attack, work, 0, num)
    assert cell["failures"] == []
    assert sum(cell["counts"].values()) == num
    assert f"| {attack} | {num} |" in table([cell])
