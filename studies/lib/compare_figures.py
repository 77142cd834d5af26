"""The results of `compare` as files: figures, captions, and the table as comma-separated values."""

import csv
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from xarray import Dataset

from nsdyn.errors import ProblemError, unknown
from nsdyn.studies.compare import LEVELS, Comparison, Run, slug
from nsdyn.studies.lib import archive, style, tables
from nsdyn.studies.lib.compare_table import MEASURED, against, measured, table

FLOOR = 1e-16  # lower limit of logarithmic axes: round-off
MOST_COORDINATES = 4  # shown in a figure
MOST_EVENTS = 20  # marked in a figure

CAPTIONS = """\
{problem}: comparison of integrators and laws, computed with nsdyn {version}.

{notes}

states{suffix}: configuration q and velocity v{coordinates}. A cross marks the last sample of a run that stopped early,
dotted lines the events of the reference.
errors{suffix}: differences from the reference over time, at least {floor:g}. Velocity and energy are left out while only one
of the two has changed its mode.
residuals{suffix}: residuals of the constraints at the three levels and energy over time.
"""
CAPTION_OF_LAWS = """\
laws: the laws side by side, on the same axes: the coordinate that moves most, its velocity, and the energy.
"""


def write(found: Comparison, folder: str | Path) -> list[Path]:
    """The table as text, Markdown, LaTeX and comma-separated values, the figures and their
    captions; returns the files."""
    folder = Path(folder)
    shown = table(found)
    files = [
        archive.replace(folder / "table.csv", lambda path: _write_csv(found, path)),
        *tables.write(folder, shown, kinds=("txt", "md", "tex")),
        *draw(found, folder),
    ]
    few = (
        ""
        if _dimension(found) <= MOST_COORDINATES
        else f", the {MOST_COORDINATES} coordinates that move most"
    )
    words = CAPTIONS.format(
        problem=found.problem, version=archive.provenance()["versions"]["nsdyn"], notes="\n".join(shown.notes),
        coordinates=few, floor=FLOOR, suffix="_*" if len(_groups(found)) > 1 else "",
    )  # fmt: skip
    more = CAPTION_OF_LAWS if len(_groups(found)) > 1 else ""
    return [
        *files,
        archive.replace(
            folder / "captions.txt", lambda path: path.write_text(words + more, "utf-8")
        ),
    ]


def _write_csv(found: Comparison, path: Path) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file)
        lines.writerow(["integrator", "law", *MEASURED, "status", "reason"])
        for run in found.runs:
            values = measured(run, found.references.get(run.law))
            numbers = ("" if np.isnan(values[name]) else f"{values[name]:.9g}" for name in MEASURED)
            status = "refused" if run.refused else run.status_name
            lines.writerow([run.integrator, run.law, *numbers, status, run.reason])


# Figures


class _Group(NamedTuple):
    """The runs of one figure, and the names of its lines."""

    name: str
    title: str
    runs: list[Run]
    labels: list[str]


def _groups(found: Comparison) -> list[_Group]:
    """One figure per law; for a single integrator, one figure with all laws."""
    runs = [run for run in found.runs if run.has_rows]
    if len(found.integrators) == 1:
        return [_Group("", found.integrators[0], runs, [run.law for run in runs])] if runs else []
    groups = []
    for law in found.laws:
        here = [run for run in runs if run.law == law]
        name = "" if len(found.laws) == 1 else f"_{slug(law)}"
        groups += [_Group(name, law, here, [run.integrator for run in here])] if here else []
    return groups


def _dimension(found: Comparison) -> int:
    return max((run.data.q.shape[1] for run in found.runs if run.has_rows), default=0)


def figure(found: Comparison, what: str, law: str | None = None) -> Figure:
    """One of the figures, of a law (the first one) or of all."""
    kinds = {"states": _states, "errors": _errors, "residuals": _residuals}
    if what not in (*kinds, "laws"):
        raise unknown("figure", what, (*kinds, "laws"))
    groups = _groups(found)
    if not groups:
        raise ProblemError("plot: expected a run with samples, found none: all were refused")
    if law is not None and law not in found.laws:
        raise unknown("law", law, found.laws)
    with style.use():
        if what == "laws":
            return _laws(found)
        chosen = groups if law is None else [x for x in groups if law in (x.title, *x.labels)]
        if not chosen:
            raise ProblemError(f"plot: expected a run with samples, found none with {law}")
        return kinds[what](found, chosen[0])


def draw(found: Comparison, folder: Path) -> list[Path]:
    files = []
    with style.use():
        for group in _groups(found):
            files += style.save(_states(found, group), folder, f"states{group.name}")
            files += style.save(_residuals(found, group), folder, f"residuals{group.name}")
            if any(against(run, found.references.get(run.law)) for run in group.runs):
                files += style.save(_errors(found, group), folder, f"errors{group.name}")
        if len(_groups(found)) > 1:
            files += style.save(_laws(found), folder, "laws")
    return files


def _look(i: int) -> dict[str, Any]:
    """Colour and line style of the i-th run. Widths differ, so that coinciding lines are
    visible."""
    colours = (*style.COLOURS, "black")
    dash = style.DASHES[(i + i // len(style.DASHES)) % len(style.DASHES)]
    return {
        "color": colours[i % len(colours)],
        "linestyle": dash,
        "linewidth": max(1.5 - 0.15 * i, 0.6),
        "zorder": 2 + 0.01 * i,
    }


def _line(ax: Axes, i: int, label: str, run: Run, t: np.ndarray, values: np.ndarray) -> None:
    ax.plot(t, values, label=label, **_look(i))
    if not run.ok and len(t):
        ax.plot(t[-1:], values[-1:], "x", color=_look(i)["color"], markersize=5, zorder=4)


def _grey(ax: Axes, found: Comparison, group: _Group, value: Any) -> None:
    """The references, as wide grey lines below the runs."""
    laws = dict.fromkeys(run.law for run in group.runs)
    references = [
        found.references[law]
        for law in laws
        if law in found.references and found.references[law].has_rows
    ]
    for k, reference in enumerate(references):
        data = reference.data
        ax.plot(
            *value(data), color="0.8", linestyle="-", linewidth=3.2, zorder=1,
            label=None if k else "reference",
        )  # fmt: skip


def _events(found: Comparison, group: _Group) -> np.ndarray:
    """When events happen: those of the references, or else of the runs; none if there are many."""
    references = [found.references[x.law] for x in group.runs if x.law in found.references]
    known = [x.data.event_t.values for x in references or group.runs if "event_t" in x.data]
    times = np.unique(np.concatenate(known)) if known else np.zeros(0)
    return times if len(times) <= MOST_EVENTS else np.zeros(0)


def _finish(fig: Figure, axes: list[Axes], found: Comparison, group: _Group) -> Figure:
    for ax, letter in zip(axes, "abcdefghijkl", strict=False):
        style.panel(ax, letter)
        _over_time(ax, found, group)
    _legend(fig, axes, group.title)
    return fig


def _over_time(ax: Axes, found: Comparison, group: _Group) -> None:
    style.mark_times(ax, _events(found, group))
    ax.set(xlabel="time $t$", xlim=found.span)


def _legend(fig: Figure, axes: list[Axes], title: str | None) -> None:
    handles, labels = max(
        (ax.get_legend_handles_labels() for ax in axes), key=lambda pair: len(pair[1])
    )
    legend = fig.legend(
        handles,
        labels,
        loc="outside upper center",
        ncols=3 if len(labels) > 2 else 2,
        title=title,
    )
    legend.get_title().set_fontsize(8)


def _laws(found: Comparison) -> Figure:
    """A column for each law: the coordinate that moves most, its velocity, and the energy."""
    groups = [_of_law(found, law) for law in found.laws]
    groups = [group for group in groups if group.runs]
    moves = np.max([np.ptp(group.runs[0].data.q.values, axis=0) for group in groups], axis=0)
    dimension = groups[0].runs[0].data.v.shape[1]  # quasi-velocities may be fewer
    k = int(np.argmax(moves[:dimension]))
    rows = {
        f"$q_{{{k + 1}}}$": lambda data: _with_jumps(data, "q", k),
        f"$v_{{{k + 1}}}$": lambda data: _with_jumps(data, "v", k),
        _energy(groups[0].runs[0]): lambda data: (data.t.values, data.energy.values),
    }
    fig, axes = style.figure((len(rows), len(groups)), style.DOUBLE, 1.0 + 1.6 * len(rows))
    for row, (label, value) in enumerate(rows.items()):
        line = axes[row * len(groups) : (row + 1) * len(groups)]
        for ax, group in zip(line, groups, strict=True):
            _grey(ax, found, group, value)
            for i, (run, name) in enumerate(zip(group.runs, group.labels, strict=True)):
                _line(ax, i, name, run, *value(run.data))
            _over_time(ax, found, group)
            ax.set_title(group.title if row == 0 else "", fontsize=style.points(8))
        limits = [x for ax in line for x in ax.get_ylim()]
        for ax in line:
            ax.set_ylim(min(limits), max(limits))
        line[0].set_ylabel(label)
    _legend(fig, axes, None)
    return fig


def _of_law(found: Comparison, law: str) -> _Group:
    """The runs with a law, whatever the number of integrators."""
    here = [run for run in found.runs if run.law == law and run.has_rows]
    return _Group("", law, here, [run.integrator for run in here])


def _states(found: Comparison, group: _Group) -> Figure:
    moved = np.ptp(group.runs[0].data.q.values, axis=0)
    shown = np.sort(np.argsort(-moved, kind="stable")[:MOST_COORDINATES])
    fig, axes = style.figure((len(shown), 2), style.DOUBLE, 1.0 + 1.6 * len(shown))
    for row, k in enumerate(shown):
        for ax, name in zip(axes[2 * row : 2 * row + 2], "qv", strict=True):
            ax.set_ylabel(f"${name}_{{{k + 1}}}$")
            if k >= group.runs[0].data[name].shape[1]:  # quasi-velocities may be fewer
                continue
            _grey(ax, found, group, lambda data, name=name, k=k: _with_jumps(data, name, k))
            for i, (run, label) in enumerate(zip(group.runs, group.labels, strict=True)):
                _line(ax, i, label, run, *_with_jumps(run.data, name, k))
    return _finish(fig, axes, found, group)


def _with_jumps(data: Dataset, name: str, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Times and values of a coordinate; velocities jump where the events are, not within a step."""
    t, values = data.t.values, data[name].values[:, k]
    if name == "q" or "event_t" not in data:
        return t, values
    at = data.event_t.values
    rows = np.repeat(np.searchsorted(t, at), 2)
    jumps = np.stack([data.event_v_before.values[:, k], data.event_v_after.values[:, k]], axis=1)
    return np.insert(t, rows, np.repeat(at, 2)), np.insert(values, rows, jumps.ravel())


def _residuals(found: Comparison, group: _Group) -> Figure:
    fig, axes = style.figure((2, 2), style.DOUBLE, 4.4)
    labels = ("$|g|$", "$|G v + g_t|$", r"$|G \dot v + \gamma|$", _energy(group.runs[0]))
    _grey(axes[3], found, group, lambda data: (data.t.values, data.energy.values))
    for i, (run, label) in enumerate(zip(group.runs, group.labels, strict=True)):
        for ax, level in zip(axes, LEVELS, strict=False):
            _line(
                ax,
                i,
                label,
                run,
                run.data.t.values,
                np.maximum(run.data[f"residual_{level}"].values, FLOOR),
            )
        _line(axes[3], i, label, run, run.data.t.values, run.data.energy.values)
    for ax, label in zip(axes, labels, strict=True):
        ax.set_ylabel(label)
    for ax in axes[:3]:
        ax.set_yscale("log")
    return _finish(fig, axes, found, group)


def _energy(run: Run) -> str:
    return "energy $T + V$" if "V" in run.data.energy.attrs["long_name"] else "kinetic energy $T$"


def _errors(found: Comparison, group: _Group) -> Figure:
    fig, axes = style.figure((1, 3), style.DOUBLE, 2.9)
    labels = ("$|q - q_r|$", "$|v - v_r|$", r"$|H - H_r| / \max T_r$")
    for i, (run, label) in enumerate(zip(group.runs, group.labels, strict=True)):
        errors = against(run, found.references.get(run.law))
        if errors is None:
            continue
        for ax, values in zip(axes, (errors.q, errors.v, errors.energy), strict=True):
            _line(ax, i, label, run, errors.t, np.maximum(values, FLOOR))
    for ax, label in zip(axes, labels, strict=True):
        ax.set(ylabel=label, yscale="log")
    return _finish(fig, axes, found, group)
