"""`marginax cluster`: planted clusters come out, rows keep their order, and mistakes are named."""

import json

import numpy as np
import pandas as pd
import pytest
from tests.cli.test_cli import run

import marginax as mx

CHEAP = ("--most", 3, "--chains", 2, "--covariance", "diagonal")


@pytest.fixture(scope="module")
def birds(tmp_path_factory):
    """Two kinds of birds, 40 and 20 of them; one wing was not measured, and all were seen in one year."""
    rng = np.random.default_rng(0)
    kind = np.arange(60) % 3 == 0
    table = pd.DataFrame(
        {
            "name": [f"=bird{i}" for i in range(60)],
            "wing": np.where(kind, 300.0, 200.0) + 5 * rng.normal(size=60),
            "weight": np.where(kind, 2.0, 0.5) + 0.1 * rng.normal(size=60),
            "year": 2020,
        }
    )
    table.loc[7, "wing"] = np.nan
    path = tmp_path_factory.mktemp("clusters") / "birds.csv"
    table.to_csv(path, index=False)
    return path, kind


@pytest.fixture(scope="module")
def found(birds):
    path, _ = birds
    out = path.parent / "out"
    result = run("cluster", path, *CHEAP, "--out", out, "--json")
    assert result.exit_code == 0, result.output
    return out, json.loads(result.stdout)


def test_planted_clusters_come_out_the_largest_first(birds, found):
    _, kind = birds
    out, values = found
    table = pd.read_csv(out / "clusters.csv")
    assert values["clusters"] == 2
    assert [bound["size"] for bound in values["bounds"]] == [1, 2, 3]
    assert len(table) == 60
    assert np.isnan(table["cluster"][7])
    seen = np.arange(60) != 7
    np.testing.assert_array_equal(table["cluster"][seen], np.where(kind, 2, 1)[seen])
    np.testing.assert_allclose(table.loc[seen, ["p(1)", "p(2)"]].sum(axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(table["probability"][seen], table.loc[seen, ["p(1)", "p(2)"]].max(axis=1))
    assert table["name"][0] == "'=bird0"
    notes = " ".join(values["notes"])
    assert "left out: name, year" in notes
    assert "1 row with missing numbers is left out" in notes


def test_the_report_is_complete_and_the_posterior_can_be_asked(birds, found):
    out, values = found
    text = (out / "report.html").read_text(encoding="utf-8")
    for heading in ("Where they lie", "How many there are", "How sure it is", "The clusters in numbers"):
        assert f"<h2>{heading}</h2>" in text
    assert "2 clusters in 59 rows" in text
    assert "first principal component" in text
    assert "<script" not in text
    posterior = mx.load(out / "posterior")
    assert posterior.elbo == pytest.approx(max(bound["elbo"] for bound in values["bounds"]))
    assert posterior.responsibilities(np.zeros((1, 2))).shape == (1, 2)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--covariance", "round"), "--covariance must be one of full, diagonal, tied, spherical, got 'round'"),
        (("--most", 0), "--most must be >= 1, got 0"),
        (("--ignore", "wing", "--ignore", "weight"), "no column of numbers that differ"),
        (("--option", "steps=3"), "--option must be NAME=VALUE with a name out of num_steps"),
        (("--out", "."), "--out must be a new or empty directory"),
    ],
)
def test_mistakes_are_one_line(birds, arguments, text):
    result = run("cluster", birds[0], *arguments)
    assert result.exit_code == 1
    assert text in " ".join(result.stderr.split())
