"""The tool that plants mutants: every operator changes what it says, and nothing else."""

import pytest
from tests.mutants.__main__ import SOURCE, files_for, naming_tests
from tests.mutants.operators import OPERATORS, mutated, sites

MODULE = '''
"""Words with 3 numbers."""

def f(a: float, b: int = 2) -> float:
    """1 + 1."""
    if a < 0:
        raise ValueError(f"a must be > {0}")
    return -a + g(a, b) * 0.5 if a <= 1 and b > 2 else a

def check_f(a):
    return a + 1
'''

CHANGES = {
    "compare": "a < 1 and b > 2",
    "compare turned": "a >= 1 and b > 2",
    "arithmetic": "-a - g(a, b) * 0.5",
    "logic": "a <= 1 or b > 2",
    "dropped term": "return -a if a <= 1",
    "constant": "b: int=3",
    "sign": "return a + g(a, b)",
    "swapped arguments": "g(b, a)",
}


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_makes_one_change(name):
    site = next(site for site in sites(MODULE) if site.operator == name)
    assert CHANGES[name] in mutated(MODULE, site)


def test_words_errors_and_checks_are_left_alone():
    for site in sites(MODULE):
        changed = mutated(MODULE, site)
        assert "Words with 3 numbers" in changed
        assert "raise ValueError(f'a must be > {0}')" in changed
        assert "return a + 1" in changed
        compile(changed, "mutant", "exec")


def test_a_module_has_many_places_and_tests_that_know_it():
    module = SOURCE / "infer" / "mcmc" / "nuts.py"
    found = sites(module.read_text())
    assert len(found) > 50
    assert files_for(module, found[0], 6)[0] == "tests/infer/test_dynamics.py"


def test_naming_tests_what_is_changed_come_first_and_slow_ones_do_not_come():
    module = SOURCE / "infer" / "mcmc" / "nuts.py"
    site = next(site for site in sites(module.read_text()) if site.inside == "_joined")
    found = naming_tests(site, ["tests/infer/test_dynamics.py"])
    assert "tests/infer/test_dynamics.py::test_a_branch_that_diverges_never_gives_the_next_state" in found
    module = SOURCE / "infer" / "swag.py"
    site = next(site for site in sites(module.read_text()) if site.inside.startswith("SWAG."))
    assert not any("predictions_are_good" in name for name in naming_tests(site, ["tests/infer/test_swag.py"]))
