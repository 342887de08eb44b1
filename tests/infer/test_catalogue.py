"""The catalogue is the one list of methods: exports, stub and documents are made from it.

`python -m tests.infer.test_catalogue` writes `infer/__init__.pyi` and the table of docs/methods.md anew.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from marginax import infer
from marginax.infer.catalogue import catalogue
from marginax.infer.method import AbstractMethod, AbstractRecipe

ROOT = Path(__file__).resolve().parents[2]
STUB, PAGE = ROOT / "src/marginax/infer/__init__.pyi", ROOT / "docs/methods.md"
BEGIN, END = "<!-- methods: begin -->\n", "<!-- methods: end -->\n"

NEW_METHOD = """
from marginax.infer.catalogue import register_method
from marginax.infer.map import MAP
from marginax.infer.method import AbstractRecipe


@register_method("method/twice", gives="a point", use_when="once is not enough", cost="2 training runs", order=21)
class Twice(AbstractRecipe):
    num_runs: int = 2

    @property
    def inner(self):
        return MAP(num_epochs=2 * self.num_runs)
"""


def stub() -> str:
    """What type checkers read."""
    homes: dict[str, list[str]] = {}
    for name in infer.__all__:
        homes.setdefault(getattr(infer, name).__module__, []).append(name)
    head = '"""Made by `python -m tests.infer.test_catalogue` from what the modules of this folder register."""\n\n'
    lines = [
        f"from {module} import {name} as {name}\n"
        for module in sorted(homes)
        for name in sorted(homes[module], key=lambda n: (not n.isupper(), not n[0].isupper(), n))
    ]
    return head + "".join(lines)


def table() -> str:
    """The list of methods in docs/methods.md."""
    rows = [f"| `{e.name}` | {e.gives} | {e.use_when} | {e.cost} |\n" for e in catalogue()]
    return "| method | what it gives | use it when | cost |\n|---|---|---|---|\n" + "".join(rows)


def page_with_table(page: str) -> str:
    return page[: page.index(BEGIN) + len(BEGIN)] + table() + page[page.index(END) :]


def test_the_stub_has_every_name():
    assert STUB.read_text(encoding="utf-8") == stub()


def test_the_page_of_methods_has_the_list():
    page = PAGE.read_text(encoding="utf-8")
    assert page == page_with_table(page)


def test_every_method_of_the_catalogue_is_exported_and_says_what_it_is():
    for entry in catalogue():
        assert getattr(infer, entry.name) is type(entry.method)
        assert entry.name in infer.__all__
        assert all((entry.gives, entry.use_when, entry.cost))


def test_a_recipe_forgets_no_member_of_the_protocol():
    members = {name for name in vars(AbstractMethod) if not name.startswith("_")} | {"batch_size"}
    assert members - set(vars(AbstractRecipe)) == {"warm_started"}  # which must give the recipe itself
    ensemble = infer.DeepEnsemble(3, infer.NUTS())
    assert ensemble.needs_full_batch
    assert not ensemble.lockstep
    assert ensemble.num_chains == 3
    assert infer.DeepEnsemble(2, infer.MCDropout()).needs_layers
    assert infer.DeepEnsemble(2, infer.Laplace()).warm_started().member.training is None


@pytest.mark.slow
def test_a_new_method_is_one_file(tmp_path):
    """In a copy of the package: it is exported, listed, stored and resumed without a second edit."""
    shutil.copytree(ROOT / "src/marginax", tmp_path / "marginax", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "marginax/infer/twice.py").write_text(NEW_METHOD)
    code = """
import numpy as np, marginax as mx
from marginax.infer.catalogue import catalogue
assert [e.name for e in catalogue()][:3] == ["MLE", "MAP", "Twice"]
assert "Twice" in mx.infer.__all__
model = mx.Model(mx.nets.MLP(1, (), 1, key=0), mx.likelihoods.Gaussian(scale=0.1))
x = np.linspace(-1, 1, 8)[:, None]
there = mx.fit(model, (x, x[:, 0]), mx.infer.Twice(), key=0, directory="run")
np.testing.assert_array_equal(mx.resume("run").predict(x).mean, there.predict(x).mean)
"""
    env = {"PYTHONPATH": str(tmp_path), "PATH": ""}
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, env=env)


if __name__ == "__main__":
    STUB.write_text(stub(), encoding="utf-8")
    PAGE.write_text(page_with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
