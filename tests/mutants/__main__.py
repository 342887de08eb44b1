"""`make mutants`: how many small wrong changes of the numerical core do the default tests notice?

Changes are picked by a seed over all modules of the core; each is made alone in a copy of the package, and the tests
that know the module are run until one fails: first those that name what was changed, then whole files, the cheap ones
first. What a file costs is measured once on the package as it is, in seconds of processor time, which other work on the
machine does not change; tests that take several times as long with the change hang because of it, and have noticed it.
What was found is kept in a file, so that a run goes on where it stopped: killed, survived, or timed out or crashed (not
decided). A survivor that changes nothing is marked by hand: "equivalent" in the file says why, and it leaves the score.
"""

import argparse
import ast
import functools
import json
import math
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.operators import Site, mutated, sites

ROOT = Path(__file__).resolve().parents[2]
SOURCE, TESTS = ROOT / "src" / "marginax", ROOT / "tests"
FOUND = Path(__file__).with_name("found.json")
COSTS = Path(__file__).with_name("costs.json")
CORE = ("infer", "predict", "posterior", "curvature", "model", "evaluate", "decide")
APART = ("mutants", "mutations", "cli", "report", "plot", "files")
APART += tuple(
    f"test_{name}" for name in ("docs", "guides", "site", "benchmarks", "house_rules", "names", "minimal_install")
)
SLOWER, START = 4.0, 60.0  # times the cost of its tests, and seconds for starting: beyond, a mutant hangs


def all_mutants() -> list[tuple[Path, Site]]:
    """Every change of every module of the core, in a fixed order."""
    modules = sorted(path for folder in CORE for path in (SOURCE / folder).rglob("*.py"))
    return [(module, site) for module in modules for site in sites(module.read_text())]


def name_of(module: Path, site: Site) -> str:
    place = module.relative_to(SOURCE).as_posix()
    return f"{place}::{site.inside}::{site.operator}::{site.before} -> {site.after}"


def files_for(module: Path, site: Site, most: int) -> list[str]:
    """Test files that name what the module defines, or what its importers define; rare names say most."""
    own, folder = _defined(module) | set(site.inside.split(".")[:1]), module.relative_to(SOURCE).parts[0]
    dotted = ".".join(("marginax", *module.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")
    users = [path for path in SOURCE.rglob("*.py") if f"from {dotted} import" in path.read_text()]
    theirs = set().union(*map(_defined, users)) - own
    words = _words_of_tests()
    scores = {}
    for path, seen in words.items():
        known = sum(1 / sum(name in other for other in words.values()) for name in own & seen)
        known += 0.3 * sum(1 / sum(name in other for other in words.values()) for name in theirs & seen)
        shared = set(module.stem.split("_")) & set(Path(path).stem.split("_"))
        scores[path] = known + 0.2 * path.startswith(f"tests/{folder}/") + 0.5 * len(shared)
    return sorted((path for path in scores if scores[path] > 0), key=lambda path: -scores[path])[:most]


def within(files: list[str], budget: float, cost: Callable[[str], float]) -> list[str]:
    """The first of these that the budget allows, at least two, and of those the cheap ones first."""
    chosen: dict[str, float] = {}
    for path in files:
        if len(chosen) < 2 or sum(chosen.values()) + cost(path) <= budget:
            chosen[path] = cost(path)
    return sorted(chosen, key=lambda path: chosen[path])


def naming_tests(site: Site, files: list[str]) -> list[str]:
    """Default tests of these files that name the function or class that is changed."""
    names = {name for name in site.inside.split(".") if not name.startswith("__")}
    found = []
    for path in files:
        for node in ast.parse((ROOT / path).read_text()).body:
            if not isinstance(node, ast.FunctionDef) or not node.name.startswith("test"):
                continue
            is_slow = any("slow" in ast.unparse(each) or "peer" in ast.unparse(each) for each in node.decorator_list)
            words = set(re.findall(r"\w+", ast.unparse(node)))
            if names & words and not is_slow:
                found.append(f"{path}::{node.name}")
    return found


def _defined(module: Path) -> set[str]:
    return set(re.findall(r"^(?:class|def) (\w+)", module.read_text(), re.MULTILINE))


@functools.cache
def _words_of_tests() -> dict[str, set[str]]:
    paths = [path.relative_to(ROOT) for path in sorted(TESTS.rglob("test_*.py"))]
    kept = [path for path in paths if path.parts[1].removesuffix(".py") not in APART]
    return {path.as_posix(): set(re.findall(r"\w+", (ROOT / path).read_text())) for path in kept}


def cost_of(path: str, folder: Path) -> float:
    """Seconds of processor time of the default tests of a file, measured where it is not known yet."""
    known = json.loads(COSTS.read_text()) if COSTS.exists() else {}
    if path not in known:
        run = run_tests([path], folder, seconds=1800.0, processor=1800.0)
        if run.code not in (0, 5):  # 5: all of its tests are slow ones
            raise RuntimeError(f"{path} must pass on the package as it is, got exit code {run.code}: {run.failed}")
        known[path] = round(run.processor, 1)
        COSTS.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n")
    return known[path]


@dataclass(frozen=True)
class Run:
    """Exit code of pytest (None where it took too long), what failed, and seconds of processor time."""

    code: int | None
    failed: list[str]
    processor: float


def run_tests(tests: list[str], folder: Path, *, seconds: float, processor: float) -> Run:
    """Default tests with the package that is in a folder, until one fails, for so many seconds at most."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "--no-header", "-p", "no:cacheprovider", *tests]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    limit = math.ceil(processor)
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5)),
        )
        try:
            code: int | None = process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", output.read(), re.MULTILINE)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Run(code, failed, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def judge(module: Path, site: Site, folder: Path, seconds: float, most: int, budget: float) -> dict[str, object]:
    """Make the change in the copy, run the tests, and undo it."""
    chosen = within(files_for(module, site, most), budget, lambda path: cost_of(path, folder))
    total = sum(cost_of(path, folder) for path in chosen)
    place = folder / "marginax" / module.relative_to(SOURCE)
    place.write_text(mutated(module.read_text(), site))
    began, limit = time.monotonic(), SLOWER * total + START
    run = run_tests([*naming_tests(site, chosen), *chosen], folder, seconds=seconds, processor=limit)
    shutil.copyfile(module, place)
    hung = run.code in (-signal.SIGXCPU, -signal.SIGKILL) and run.processor > 0.9 * limit
    killed = run.code in (1, 2, 4) or hung  # failed tests, errors while collecting, errors while importing
    verdict = "timed out" if run.code is None else "survived" if run.code == 0 else "killed" if killed else "crashed"
    by = [f"hangs: {SLOWER:g} times the {total:.0f} s of its tests"] if hung else run.failed[:1]
    return {"verdict": verdict, "by": by, "seconds": round(time.monotonic() - began), "line": site.line}


def show(found: dict[str, dict]) -> None:
    """Survivors, and the score."""
    counted = {name: entry for name, entry in found.items() if "equivalent" not in entry}
    verdicts = [entry["verdict"] for entry in counted.values()]
    for name, entry in counted.items():
        if entry["verdict"] == "survived":
            print(f"survived   line {entry['line']}: {name}")
    killed, survived = verdicts.count("killed"), verdicts.count("survived")
    print(
        f"{killed} of {killed + survived} mutants killed ({killed / max(killed + survived, 1):.0%}); "
        f"{len(verdicts) - killed - survived} not decided, {len(found) - len(counted)} equivalent"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--num", type=int, default=60, help="mutants in all; those that are known are not run again")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1800.0, help="for the tests of a mutant, by the clock")
    parser.add_argument("--budget", type=float, default=150.0, help="seconds of processor time of the tests chosen")
    parser.add_argument("--files", type=int, default=8, help="most test files for a mutant")
    parser.add_argument("--only", nargs="+", default=CORE, choices=CORE, help="folders of the core")
    parser.add_argument("--again", action="store_true", help="run survivors and those that timed out again")
    options = parser.parse_args()
    found = json.loads(FOUND.read_text()) if FOUND.exists() else {}
    mutants = all_mutants()
    random.Random(options.seed).shuffle(mutants)
    mutants = [pair for pair in mutants if pair[0].relative_to(SOURCE).parts[0] in options.only]
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(SOURCE, Path(folder) / "marginax", ignore=shutil.ignore_patterns("__pycache__"))
        for number, (module, site) in enumerate(mutants[: options.num]):
            name = name_of(module, site)
            known = found.get(name, {})
            if known and not (options.again and known["verdict"] != "killed" and "equivalent" not in known):
                continue
            found[name] = judge(module, site, Path(folder), options.seconds, options.files, options.budget)
            FOUND.write_text(json.dumps(found, indent=1) + "\n")
            print(f"{number + 1:4d} {found[name]['verdict']:10s} {found[name]['seconds']:4d} s  {name}", flush=True)
    print(f"\n{len(mutants)} mutants are possible")
    show(found)


if __name__ == "__main__":
    main()
