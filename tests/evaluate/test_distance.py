"""What a posterior does not know grows away from the data, whatever the method."""

import pytest
from benchmarks.entries.distance import ask_moons, ask_sine, methods

QUICK = ("IVON",)
CASES = [
    pytest.param(method, id=name, marks=[] if name in QUICK else pytest.mark.slow) for name, method in methods().items()
]


@pytest.mark.parametrize("method", CASES)
@pytest.mark.parametrize("ask", [ask_sine, ask_moons])
@pytest.mark.slow
def test_epistemic_uncertainty_grows_away_from_the_data(ask, method):
    answer = ask(method)
    assert answer.epistemic[0] > 0
    assert answer.grows
