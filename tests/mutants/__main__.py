"""`make mutants`: how many small wrong changes of the numerical core do the default tests notice?

Changes are picked by a seed over all modules of the core; each is made alone in a copy of the package, and the tests
that know the module are run until one fails. What was found is kept in a file, so that a run goes on where it stopped:
killed, survived, or timed out or crashed (not decided). A survivor that changes nothing is marked by hand:
"equivalent" in the file says why, and it leaves the score.
"""

import argparse
import functools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.mutants.operators import Site, mutated, sites

ROOT = Path(__file__).resolve().parents[2]
SOURCE, TESTS = ROOT / "src" / "marginax", ROOT / "tests"
FOUND = Path(__file__).with_name("found.json")
CORE = ("infer", "predict", "posterior", "curvature", "model", "evaluate", "decide")
APART = ("mutants", "mutations", "cli", "report", "plot", "files")
APART += tuple(
    f"test_{name}" for name in ("docs", "guides", "site", "benchmarks", "house_rules", "names", "minimal_install")
)
LATE = ("test_conformance.py", "test_samplers.py", "test_sensible_defaults.py", "test_uci.py")  # take minutes


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
    best = sorted((path for path in scores if scores[path] > 0), key=lambda path: -scores[path])[:most]
    return sorted(best, key=lambda path: path.endswith(LATE))


def _defined(module: Path) -> set[str]:
    return set(re.findall(r"^(?:class|def) (\w+)", module.read_text(), re.MULTILINE))


@functools.cache
def _words_of_tests() -> dict[str, set[str]]:
    paths = [path.relative_to(ROOT) for path in sorted(TESTS.rglob("test_*.py"))]
    kept = [path for path in paths if path.parts[1].removesuffix(".py") not in APART]
    return {path.as_posix(): set(re.findall(r"\w+", (ROOT / path).read_text())) for path in kept}


def judge(module: Path, site: Site, copy: Path, seconds: float, most: int) -> dict[str, object]:
    """Make the change in the copy, run the tests, and undo it."""
    place = copy / "marginax" / module.relative_to(SOURCE)
    place.write_text(mutated(module.read_text(), site))
    chosen = files_for(module, site, most)
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "--no-header", "-p", "no:cacheprovider", *chosen]
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(seconds)  # failed tests, errors while collecting, errors while importing
            verdict = "survived" if code == 0 else "killed" if code in (1, 2, 4) else "crashed"
        except subprocess.TimeoutExpired:
            verdict = "timed out"
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", output.read(), re.MULTILINE)
    shutil.copyfile(module, place)
    return {"verdict": verdict, "by": failed[:1], "seconds": round(time.monotonic() - began), "line": site.line}


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
    parser.add_argument("--seconds", type=float, default=600.0, help="for the tests of a mutant")
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
            found[name] = judge(module, site, Path(folder), options.seconds, options.files)
            FOUND.write_text(json.dumps(found, indent=1) + "\n")
            print(f"{number + 1:4d} {found[name]['verdict']:10s} {found[name]['seconds']:4d} s  {name}", flush=True)
    print(f"\n{len(mutants)} mutants are possible")
    show(found)


if __name__ == "__main__":
    main()
