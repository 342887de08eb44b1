"""Every method of the catalogue, with no arguments, gives a sensible posterior on small problems.

The seven UCI sets are left to `make bench NAME=sensible`, which has the same judges.
"""

import pytest
from benchmarks.harness.sensible_problems import problems, says_so

from marginax.infer.catalogue import catalogue

METHODS = {entry.name: entry.method for entry in catalogue()}


@pytest.mark.slow
@pytest.mark.parametrize("problem", ["moons", "sine", "ten points"])
@pytest.mark.parametrize("name", METHODS)
def test_no_arguments_are_sensible(name, problem):
    case = problems()[problem]
    posterior = case.fit(METHODS[name])
    assert case.judge(METHODS[name], posterior).faults == () or says_so(posterior)


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_no_arguments_are_sensible_on_digits(name, data_dir):
    case = problems()["mnist"]
    assert case.judge(METHODS[name], case.fit(METHODS[name])).faults == ()


def test_a_constant_prediction_is_not_sensible():
    """The judge can say no."""
    import marginax as mx

    case = problems()["moons"]
    nothing = mx.infer.MAP(num_epochs=1)
    assert case.judge(nothing, case.fit(nothing)).faults != ()
