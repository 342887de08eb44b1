"""Peers live in environments of their own under `.bench/`, so that they can never become a dependency of ours."""

import subprocess
import sys
from pathlib import Path

from benchmarks.harness.entry import Environment

ROOT = Path(__file__).resolve().parents[2]


def python_of(environment: Environment | None) -> str:
    """The interpreter of an environment, which is made first where it is missing or has other packages."""
    if environment is None:
        return sys.executable
    folder = ROOT / ".bench" / environment.name
    python, stamp = folder / "bin" / "python", folder / ".installed"
    wanted = "\n".join(environment.packages)
    if stamp.exists() and stamp.read_text() == wanted:
        return str(python)
    print(f"Setting up .bench/{environment.name} ({', '.join(environment.packages)}; once) ...", flush=True)
    _run("venv", "--clear", "--without-pip", str(folder))
    for package in environment.packages:
        _run("pip", "--python", str(python), "install", "--quiet", "--disable-pip-version-check", package)
    stamp.write_text(wanted)
    return str(python)


def tree_of(folder: str) -> str:
    """The committed state of a folder: what was measured with it can be kept while it is the same."""
    asked = ["git", "rev-parse", "--short", f"HEAD:{folder}"]
    return subprocess.run(asked, capture_output=True, text=True, cwd=ROOT, check=True).stdout.strip()


def _run(module: str, *arguments: str) -> None:
    finished = subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True, text=True)
    if finished.returncode:
        raise SystemExit(f"could not set up a peer: {module} failed\n{finished.stderr}")
