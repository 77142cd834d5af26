"""The figures and files of a study: error against run time (work-precision) and against the step
(convergence)."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from nsdyn.studies.compare import slug
from nsdyn.studies.lib import archive, schemes, study_summary, study_tables, style, tables
from nsdyn.studies.lib.study_result import MISSING, StudyResult

FLOOR = 1e-16  # errors end at round-off
LEAST = 4.0  # the axis of run times reaches at least from 1/LEAST to LEAST times its middle
MOST_ROWS = 4  # problems in one figure
LABELS = {
    "run_s": "CPU time of a run [s]",
    "step": "step $h$",
    "error_q": "error of $q$",
    "error_v": "error of $v$",
    "error_lam": r"error of $\lambda$",
    "error_Lam": r"error of $\Lambda$",
    "error_t_event": "error of event times",
    "graph_v": "distance of graphs of $v$",
    "error_energy": "error of energy",
    "error_end": "error at the end",
}
CAPTIONS = """\
{title}. Computed with nsdyn {version}.

{notes}

{figures}: errors are the worst of {phases} phases (places of the grid relative to the events), at least {floor:g}; one mark for
each step. An open mark: some phases did not reach the end. Run times are CPU seconds of one run in a batch, without compilation.
"""


def write(result: StudyResult, folder: Path) -> list[Path]:
    """Tables (text, Markdown, LaTeX, all runs as comma-separated values), the dataset, figures and
    captions; returns the files."""
    table = result.table
    texts = {
        "pairs.csv": study_tables.pairs(table),
        "runs.csv": result.to_csv(),
        "captions.txt": _captions(result),
    }
    files = tables.write(folder, table, kinds=("txt", "md", "tex"))
    if len(result.plan.problems) >= study_summary.LEAST:
        files += tables.write(folder, study_summary.summary(result), study_tables.SUMMARY)
    files += [schemes.write(folder / name, text) for name, text in texts.items()]
    encode = {name: {"dtype": "S1"} for name in ("problem", "integrator", "law")}
    files.append(
        archive.replace(
            folder / "study.nc",
            lambda path: result.data.to_netcdf(path, engine="scipy", encoding=encode),
        )
    )
    with style.use():
        for name in result.plan.figures:
            for law in result.plan.laws:
                files += _saved(result, folder, name, law)
    return files


def _captions(result: StudyResult) -> str:
    return CAPTIONS.format(
        title=result.plan.title, version=archive.provenance()["versions"]["nsdyn"],
        notes="\n".join(result.table.notes), figures=", ".join(result.plan.figures),
        phases=result.plan.phases, floor=FLOOR,
    )  # fmt: skip


def _saved(result: StudyResult, folder: Path, name: str, law: str) -> list[Path]:
    """One figure for a law, or one for each problem if there are many."""
    problems = list(result.plan.problems)
    groups = [problems] if len(problems) <= MOST_ROWS else [[x] for x in problems]
    files = []
    for group in groups:
        if not _has_data(result, law, group):
            continue
        parts = [name, *([law] if len(result.plan.laws) > 1 else [])]
        parts += group if len(groups) > 1 else []
        files += style.save(_figure(result, name, law, group), folder, slug("-".join(parts)))
    return files


def _has_data(result: StudyResult, law: str, problems: list[str]) -> bool:
    """Whether there is a run to draw: of what was refused, given up or not computed there is
    none."""
    status = result.data.status.sel(problem=problems, law=law).values
    return bool(np.any(status != MISSING))


def figure(result: StudyResult, name: str, law: str) -> Figure:
    """A figure of all problems."""
    with style.use():
        return _figure(result, name, law, list(result.plan.problems))


def _figure(result: StudyResult, name: str, law: str, problems: list[str]) -> Figure:
    chosen = result.plan.figures[name]
    x, columns = chosen["x"], list(chosen["y"])
    width = style.COLUMN if len(columns) == 1 else style.DOUBLE
    fig, axes = style.figure((len(problems), len(columns)), width, 0.7 + 2.1 * len(problems))
    for place, ax in enumerate(axes):
        problem, y = problems[place // len(columns)], columns[place % len(columns)]
        _panel(ax, result, (problem, law), x, y)
        style.panel(ax, "abcdefghijklmnopqrstuvwxyz"[place % 26])
        if len(result.plan.problems) > 1:
            ax.set_title(problem, loc="right", pad=5)
    handles, labels = max(
        (ax.get_legend_handles_labels() for ax in axes), key=lambda found: len(found[1])
    )
    title = law if len(result.plan.laws) > 1 else None
    if handles:
        columns_of_legend = 4 if width == style.DOUBLE else 2
        fig.legend(
            handles, labels, loc="outside upper center", ncols=columns_of_legend, title=title
        )
    return fig


def _panel(ax: Axes, result: StudyResult, which: tuple[str, str], x: str, y: str) -> None:
    problem, law = which
    i = list(result.plan.problems).index(problem)
    k = list(result.plan.laws).index(law)
    heights = result.worst(y)[i, :, k]
    h = result.data.h.values[i]
    across = np.broadcast_to(h, heights.shape) if x == "step" else result.worst(x)[i, :, k]
    failed = result.failed()[i, :, k]
    for j, name in enumerate(result.plan.integrators):
        good = np.isfinite(heights[j]) & np.isfinite(across[j])
        if not good.any():
            continue
        look = _look(j)
        values = np.maximum(heights[j], FLOOR)
        ax.plot(across[j][good], values[good], label=name, **look)
        some = good & (failed[j] > 0)
        open_ = look | {"linestyle": "none", "markerfacecolor": "white", "zorder": 3}
        ax.plot(across[j][some], values[some], **open_)
    ax.set(xscale="log", yscale="log", xlabel=LABELS.get(x, x), ylabel=LABELS.get(y, y))
    ax.margins(0.08)
    if x != "step":
        low, high = ax.get_xlim()
        middle = np.sqrt(low * high)  # run times that differ by noise should look equal
        ax.set_xlim(min(low, middle / LEAST), max(high, middle * LEAST))
    for axis in (ax.xaxis, ax.yaxis):
        _ticks(axis)


def _ticks(axis: Axis) -> None:
    """Powers of ten; on an axis shorter than two of them also 2 and 5 times those."""
    low, high = axis.get_view_interval()
    axis.set_minor_formatter(NullFormatter())
    if high < 80 * low:
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _look(j: int) -> dict[str, Any]:
    colours = (*style.COLOURS, "black")
    return {
        "color": colours[j % len(colours)],
        "linestyle": style.DASHES[j % len(style.DASHES)],
        "marker": style.MARKERS[j % len(style.MARKERS)],
    }
