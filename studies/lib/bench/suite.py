"""All measurements of `nsdyn bench`. Numbers to compare come from one run on one machine, as ratios:
the shortest of several times, and CPU time for compilation."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from nsdyn.studies.lib.bench import (
    batches,
    chain_cost,
    contacts,
    peers,
    precision,
    runs,
    start,
    stiff,
    tree_cost,
)
from nsdyn.studies.lib.bench.measure import machine
from nsdyn.studies.lib.bench.yardstick import Ratio

DIFFERS = 1e-8  # largest difference of end states that do the same steps


def stages(quick: bool = False) -> dict[str, Callable[[], dict[str, Any]]]:
    """The measurements by name; each returns its part of the results."""
    repeats = 3 if quick else 7
    ratio = Ratio()
    found: dict[str, Callable[[], dict[str, Any]]] = {
        "C": partial(runs.hardware, repeats),
        "start": partial(start.start, 1 if quick else 2),
        "one trajectory": partial(runs.one_trajectory, ratio, repeats),
        "implicit steps": partial(runs.implicit, repeats),
        "a batch": partial(batches.batch, ratio, repeats),
        "robots": partial(batches.robot, repeats),
        "accuracy": partial(precision.accuracy, quick, 2),
        "other programs": partial(peers.peers, repeats),
    }
    if not quick:
        found |= {"large batches": batches.large, "memory": start.memory}
        found |= {"chains": _chains, "trees": tree_cost.trees}
        found |= {"contacts": partial(contacts.contacts, 3)}
        found |= {"stiff": partial(stiff.stiff, 3)}
    return found


def _chains() -> dict:
    """Recursions against the dense mass matrix."""
    found = chain_cost.measure()
    return {"chains": {"lines": chain_cost.lines(found), **found}}


def rows(results: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """Quantity, measured, target, met."""
    return [row(line) for part in results.values() for line in part["lines"]]


def row(line: dict[str, Any]) -> tuple[str, str, str, str]:
    value = "-" if line["value"] is None else f"{line['value']:.3g}"
    met = {True: "yes", False: "no", None: ""}[line.get("met")]
    return line["quantity"], value, line.get("target", ""), met


def notes(results: dict[str, Any]) -> list[str]:
    """What was not measured, and what is wrong with the rest."""
    found = [part["note"] for part in results.values() if part.get("note")]
    for name, part in results.items():
        if part.get("difference_from_c", 0.0) > DIFFERS:
            difference = part["difference_from_c"]
            found.append(f"{name}: the end state differs from that of C by {difference:.1e}")
    met = [line["met"] for part in results.values() for line in part["lines"] if "met" in line]
    return [*dict.fromkeys(found), f"{sum(met)} of {len(met)} targets are met"]


def figures(results: dict[str, Any], folder: str | Path) -> list[Path]:
    """Archive and draw the results that have a figure."""
    files: list[Path] = []
    processor = machine()["processor"]
    if "accuracy" in results:
        files += precision.draw(results["accuracy"]["cases"], processor, folder)
    if "chains" in results:
        chain_cost.store(folder, results["chains"], {"processor": processor})
        files += chain_cost.draw(folder)
    return files
