"""Rules of the house that no other tool checks."""

import ast
import importlib.metadata
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted(path for folder in ("src", "tests", "benchmarks") for path in (ROOT / folder).rglob("*.py"))
PIN = re.compile(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+")


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-docs.txt"])
def test_pins_are_names_and_versions(name):
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    assert lines
    assert [line for line in lines if not PIN.fullmatch(line)] == []


def test_direct_dependencies_are_pinned():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    unpinned = ("docs", "torch")  # PyTorch takes 900 MB: tests that need it have an environment of their own
    chosen = [line for name, each in extras.items() if name not in unpinned for line in each]
    lines = [line for line in chosen if not line.startswith("marginax[")]
    wanted = {_name(line) for line in project["dependencies"] + lines}
    pinned = {_name(line) for line in (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()}
    assert wanted - pinned == set()


def test_what_is_imported_is_a_dependency_and_the_other_way_round():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    always = {_name(line) for line in project["dependencies"]}
    brought = {}
    for extra in ("playground", "cli", "data", "images", "launch", "molecules", "plot", "programs", "tables", "torch"):
        brought |= {_name(line): extra for line in extras[extra] if not line.startswith("marginax[")}
    modules = {"pillow": "PIL", "scikit-learn": "sklearn", "ml-dtypes": "ml_dtypes"}
    found = set()
    for path in (ROOT / "src").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        found |= set(re.findall(r'require\("([A-Za-z_]+)', text))
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                found |= {each.name.partition(".")[0] for each in node.names}
            elif isinstance(node, ast.ImportFrom):
                found.add((node.module or "").partition(".")[0])
    found -= set(sys.stdlib_module_names) | {"marginax"}
    users = {"flax"}  # only of somebody who brings a network of Flax
    assert {modules.get(name, name) for name in always | set(brought)} == found - users
    from marginax._extras import EXTRAS

    assert {modules.get(name, name): extra for name, extra in brought.items()} == EXTRAS


def test_version_is_said_once():
    import marginax

    assert marginax.__version__ == importlib.metadata.version("marginax")


def test_python_files_have_at_most_400_lines():
    lengths = {path.relative_to(ROOT).as_posix(): _num_lines(path) for path in SOURCES}
    most = {name: 500 if name.startswith("tests/") else 400 for name in lengths}
    assert {name: length for name, length in lengths.items() if length > most[name]} == {}


def test_no_file_is_named_for_nothing():
    empty_names = {"utils", "util", "misc", "helpers", "base", "common"}
    assert [path for path in SOURCES if path.stem.strip("_") in empty_names] == []


def test_shapes_are_checked_while_testing():
    import marginax

    assert type(marginax.__loader__).__module__.startswith("jaxtyping")


def test_import_loads_no_heavy_library():
    heavy = (
        "PIL arviz blackjax dask distributed flax matplotlib numpyro pandas pooch rdkit rich safetensors selfies "
        "sklearn starlette typer"
    )
    code = f"import sys, marginax; print([name for name in '{heavy}'.split() if name in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "[]"


# Whoever needs to know what a likelihood, a prediction or a distribution is about asks for its `outcome`.
HOMES = {
    "likelihood": ("model/",),
    "distribution": ("model/", "predict/"),
    "prediction": ("predict/",),
}
OFFENDERS = {
    "decide/drawn.py": {"Bernoulli", "Categorical"},
    "evaluate/chains.py": {"Categorical"},
    "posterior/tuning.py": {"GaussianNoise"},
    "predict/linearised.py": {"Bernoulli", "Categorical", "Gaussian"},
}
"""Files that still ask, and for what; it may only become shorter."""


def test_nobody_asks_for_the_class_of_a_likelihood_a_prediction_or_a_distribution():
    source = ROOT / "src" / "marginax"
    families = _families()
    found: dict[str, set[str]] = {}
    for path in sorted(source.rglob("*.py")):
        name = path.relative_to(source).as_posix()
        tree = ast.parse(path.read_text(encoding="utf-8"))
        known = _imported_from_homes(tree, families)
        for asked in _classes_asked_for(tree):
            allowed = asked in OFFENDERS.get(name, ()) or name.startswith(HOMES.get(known.get(asked, ""), ("",)))
            if not allowed:
                found.setdefault(name, set()).add(asked)
    assert found == {}


def _families() -> dict[str, dict[str, str]]:
    """Final classes by the module prefix that they are imported from; abstract ones may be asked for."""
    from marginax import predict
    from marginax.model import distributions, likelihoods
    from marginax.model.distribution import AbstractDistribution

    places = {
        "marginax.model.likelihoods": (likelihoods, "likelihood", likelihoods.AbstractLikelihood),
        "marginax.model.distributions": (distributions, "distribution", AbstractDistribution),
        "marginax.predict": (predict, "prediction", predict.AbstractPrediction),
    }
    families = {}
    for place, (module, kind, parent) in places.items():
        classes = {name: value for name, value in vars(module).items() if isinstance(value, type)}
        names = [name for name, value in classes.items() if issubclass(value, parent)]
        families[place] = {name: kind for name in names if not name.startswith("Abstract")}
    families["marginax.predict"]["RecalibratedPrediction"] = "prediction"
    return families


def _imported_from_homes(tree: ast.AST, families: dict[str, dict[str, str]]) -> dict[str, str]:
    """Names in a file that stand for such classes, and what they are."""
    known = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for place, names in families.items():
                if node.module == place or node.module.startswith(f"{place}."):
                    known |= {a.asname or a.name: names[a.name] for a in node.names if a.name in names}
    return known | {f"likelihoods.{name}": "likelihood" for name in families["marginax.model.likelihoods"]}


def _classes_asked_for(tree: ast.AST) -> set[str]:
    """What is in the second argument of isinstance and issubclass, and compared with type(...)."""
    asked: set[str] = set()
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("isinstance", "issubclass")
        ):
            parts = [node.args[1]]
        elif isinstance(node, ast.Compare) and ast.unparse(node.left).startswith("type("):
            parts = node.comparators
        else:
            continue
        for part in parts:
            asked |= {ast.unparse(leaf) for leaf in ast.walk(part) if isinstance(leaf, ast.Name | ast.Attribute)}
    return asked


def _name(requirement: str) -> str:
    match = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert match, requirement
    return re.sub(r"[-_.]+", "-", match[0]).lower()


def _num_lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def test_import_computes_nothing():
    script = """
import marginax
from jax._src import xla_bridge
assert not xla_bridge.backends_are_initialized()
"""
    subprocess.run([sys.executable, "-c", script], check=True)
