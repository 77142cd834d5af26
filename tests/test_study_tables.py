"""What the page on the whole library says is what its tables show."""

import csv
import json
import re
from pathlib import Path

import pytest

from nsdyn.studies.lib import study_counts

ROOT = Path(__file__).resolve().parents[1]
TABLES = ROOT / "docs" / "library"
PAGE = (ROOT / "docs" / "library.md").read_text("utf-8")

HEAD = "problem,law,integrator,order of error v,status,reason\n"
CAPTURE = "integrator and law: Alpha and {} do not go together: nothing rebounds"


@pytest.fixture(scope="module")
def rows():
    with (TABLES / "pairs.csv").open(newline="", encoding="utf-8") as file:
        found = list(csv.DictReader(file))
    return {(row["problem"], row["law"], row["integrator"]): row for row in found}


def number(text):
    return float(text.split(" ")[0])


def test_counts():
    """Three problems, two integrators, two laws: one problem is smooth, one pair is not there."""
    lines = [
        "swing,after,rk4,4.00 ± 0.01,OK,",
        "swing,after,alpha,2.00,given up,TookTooLong: 3 s",
        "track,after,rk4,3.00,OK,",
        "track,zero,rk4,-,mostly LAW_VIOLATES,",
        f"track,after,alpha,-,refused,{CAPTURE.format('After')}",
        f"track,zero,alpha,-,refused,{CAPTURE.format('Zero')}",
        "ball,after,rk4,3.50,OK,",
        "ball,after,alpha,1.00,OK,",
        "ball,zero,rk4,-,mostly LAW_VIOLATES,",
    ]
    told = study_counts.text(HEAD + "\n".join(lines), (3, 2, 2, 3, 1))
    assert told.startswith("Of 12 pairs (with a problem each) 8 are to run and 4 are not. Of the")
    assert "4 reach the end with every step, 4 do not: 2 LAW_VIOLATES, 1 given up, 1" in told
    assert "| 2 | 1 problems are smooth: no law is asked, so one stands for all |" in told
    assert "| 2 | `Alpha` with `After`, `Zero`: nothing rebounds |" in told
    assert "2 pairs are missing: 1 of `swing`, 1 that were not computed." in told
    assert "| `rk4` | 3.50 |\n| `alpha` | 1.50 |" in told
    assert re.search(r"not: none\.", study_counts.text(HEAD + lines[0] + "\n", (1, 1, 1, 3, 1)))


def test_the_counts_of_the_library_are_those_of_its_table():
    origin = json.loads((TABLES / "origin.json").read_text("utf-8"))
    told = study_counts.text((TABLES / "pairs.csv").read_text("utf-8"), origin["shape"])
    assert (TABLES / "counts.md").read_text("utf-8") == told
    assert "{include} library/counts.md" in PAGE and "{include} library/summary.md" in PAGE


def test_surprises_at_the_corner(rows):
    """Index 1 drifts, index 3 rings, index 2 is right for one law only: what the page explains."""
    here = lambda law, name: rows["point_on_track", law, name]
    assert "drifts" in PAGE and "rings" in PAGE
    drifts, rings, nearly = (here("post_switch", f"alpha{k}") for k in (1, 3, 2))
    assert number(drifts["residual velocity"]) == 2.0
    assert number(drifts["residual position"]) == 0.75
    assert number(drifts["residual accel."]) < 1e-12
    assert abs(number(drifts["order of error q"])) < 0.05
    assert number(rings["residual position"]) < 1e-12 < 1.5 < number(rings["residual velocity"])
    assert abs(number(rings["order of error v"]) - 0.17) < 0.05
    assert number(rings["order of error q"]) == pytest.approx(1, abs=0.05)
    assert number(nearly["residual velocity"]) < 1e-12 < 1e-4 < number(nearly["residual position"])
    assert number(nearly["order of error q"]) == pytest.approx(1, abs=0.05)
    errors = [number(here("mid", f"alpha{k}")["error q"]) for k in (2, 3, 1)]
    assert all(f"{x:.2f}" in PAGE for x in errors)
    assert max(abs(number(here("mid", f"alpha{k}")["order of error q"])) for k in (1, 2, 3)) < 0.05
    for name in ("nsga", "moreau"):
        assert number(here("mid", name)["order of error q"]) == pytest.approx(1, abs=0.05)
    same = "post_switch", "mueller", "zero"
    assert len({here(law, "nsga")["error q"] for law in same}) == 1  # one law on this track
    assert here("mid", "nsga")["error q"] == here("grassmann", "nsga")["error q"]


def test_surprises_of_the_other_problems(rows):
    status = lambda *place: rows[place]["status"]
    lock = "three_r_pendulum", "post_switch"
    assert number(rows[*lock, "alpha1"]["error q"]) > 1 < number(rows[*lock, "alpha3"]["error v"])
    assert number(rows[*lock, "event_rk4"]["error q"]) < 1e-4
    for law in ("post_switch", "mueller", "zero"):
        assert status("newtons_cradle", law, "event_rk4") == "mostly LEADS_BACK"
    assert status("newtons_cradle", "restitution", "event_rk4") == "OK"
    assert status("simplest_walker", "mid", "event_rk4") == "mostly CUT_LOCUS"
    bilateral = [k for k, row in rows.items() if k[1:] == ("restitution", "event_rk4")]
    ended = [k for k in bilateral if rows[k]["status"] != "OK"]
    assert (len(ended), len(bilateral) - len(ended)) == (12, 5)  # "twelve problems", "the five"
    wheel = "rimless_wheel", "post_switch"
    assert (
        number(rows[*wheel, "nsga"]["error q"])
        > 0.1
        > 1e-6
        > number(rows[*wheel, "event_rk4"]["error q"])
    )
    blade = [rows["knife_edge", "post_switch", f"alpha{k}"]["error q"] for k in (2, 3)]
    assert blade[0] == blade[1]
