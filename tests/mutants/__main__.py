"""`make mutants`: how many small wrong changes of the numerical core do the default tests notice?

Changes are picked by a seed over all modules of the core; each is made alone in a copy of the package, and the tests
that know the module are run until one fails: first those that name what was changed, then whole files, those first that
know it best, for so many seconds of processor time, which other work on the machine does not change. What was found is
kept in a file, so that a run goes on where it stopped: killed, or survived what it was given. A survivor that changes
nothing is marked by hand: "equivalent" in the file says why, and it leaves the score.
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
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutants.operators import Site, mutated, sites

ROOT = Path(__file__).resolve().parents[2]
SOURCE, TESTS = ROOT / "src" / "marginax", ROOT / "tests"
FOUND = Path(__file__).with_name("found.json")
WRITING = threading.Lock()  # it
CORE = ("infer", "predict", "posterior", "curvature", "model", "evaluate", "decide")
APART = ("mutants", "mutations", "cli", "report", "plot", "files")
APART += tuple(
    f"test_{name}" for name in ("docs", "guides", "site", "benchmarks", "house_rules", "names", "minimal_install")
)


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


def run_tests(tests: list[str], folder: Path, budget: float) -> tuple[int | None, list[str]]:
    """Exit code of default tests with the package that is in a folder, until one fails, and which one that was.

    None where the processor time of the budget was over before one failed.
    """
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "--no-header", "-p", "no:cacheprovider", *tests]
    limit = math.ceil(budget)
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
            code = process.wait(20 * budget)  # by the clock: something waits for something
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return None, []
        output.seek(0)
        failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", output.read(), re.MULTILINE)
    return None if code in (-signal.SIGXCPU, -signal.SIGKILL) else code, failed


def judge(module: Path, site: Site, folder: Path, most: int, budget: float) -> dict[str, object]:
    """Make the change in the copy, and run the tests."""
    chosen = files_for(module, site, most)
    (folder / "marginax" / module.relative_to(SOURCE)).write_text(mutated(module.read_text(), site))
    began = time.monotonic()
    code, failed = run_tests([*naming_tests(site, chosen), *chosen], folder, budget)
    # 1: failed tests; 2 and 4: errors while collecting or importing; others: pytest itself crashed
    verdict = "survived" if code in (0, None) else "killed" if code in (1, 2, 4) else "crashed"
    return {"verdict": verdict, "by": failed[:1], "seconds": round(time.monotonic() - began), "line": site.line}


def show(found: dict[str, dict]) -> None:
    """Survivors, and the score."""
    counted = {name: entry for name, entry in found.items() if "equivalent" not in entry}
    verdicts = [entry["verdict"] for entry in counted.values()]
    for name, entry in counted.items():
        if entry["verdict"] == "survived":
            print(f"survived   line {entry['line']}: {name}")
    killed = verdicts.count("killed")
    share = killed / max(len(verdicts), 1)
    print(f"{killed} of {len(verdicts)} mutants killed ({share:.0%}); {len(found) - len(counted)} more are equivalent")


def main() -> None:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--num", type=int, default=60, help="mutants in all; those that are known are not run again")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--budget", type=float, default=240.0, help="seconds of processor time for a mutant's tests")
    parser.add_argument("--files", type=int, default=8, help="most test files for a mutant")
    parser.add_argument("--only", nargs="+", default=CORE, choices=CORE, help="folders of the core")
    parser.add_argument("--again", action="store_true", help="run survivors again")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="mutants at a time; by default one per core")
    options = parser.parse_args()
    found = json.loads(FOUND.read_text()) if FOUND.exists() else {}
    mutants = all_mutants()
    random.Random(options.seed).shuffle(mutants)
    mutants = [pair for pair in mutants if pair[0].relative_to(SOURCE).parts[0] in options.only]

    def decide(number: int, module: Path, site: Site) -> None:
        name = name_of(module, site)
        known = found.get(name, {})
        if known and not (options.again and known["verdict"] != "killed" and "equivalent" not in known):
            return
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(SOURCE, Path(folder) / "marginax", ignore=shutil.ignore_patterns("__pycache__"))
            entry = judge(module, site, Path(folder), options.files, options.budget)
        with WRITING:
            found[name] = entry
            FOUND.write_text(json.dumps(found, indent=1) + "\n")
            print(f"{number + 1:4d} {entry['verdict']:10s} {entry['seconds']:4d} s  {name}", flush=True)

    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(lambda each: decide(each[0], *each[1]), enumerate(mutants[: options.num])))
    print(f"\n{len(mutants)} mutants are possible")
    show(found)


if __name__ == "__main__":
    main()
