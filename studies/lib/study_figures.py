"""The figures and files of a study: error against run time (work-precision) and against the step
(convergence), and the share of problems solved against the cost (performance profile)."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from nsdyn.errors import unknown
from nsdyn.studies.compare import slug
from nsdyn.studies.lib import archive, schemes, study_summary, study_tables, style, tables
from nsdyn.studies.lib.study_file import KINDS, MANY, PROFILE
from nsdyn.studies.lib.study_result import MISSING, StudyResult

FLOOR = 1e-16  # errors end at round-off
LEAST = 4.0  # the axis of run times reaches at least from 1/LEAST to LEAST times its middle
MOST_ROWS = 4  # problems in one figure
MOST_FACTOR = 1e6  # a profile ends there: whoever solves more at a larger cost is of no use
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
CAPTION_OF_PROFILE = """
profile: the share of all cases (problem, law and step) in which an integrator has an error, or a run time, of at most so many times that
of the best one (E. D. Dolan, J. J. More, Math. Program. 91, 2002). On the left: how often it is the best; on the right: how often it
reaches the end in all phases, at whatever cost up to a million times that of the best.
"""


def write(result: StudyResult, folder: Path) -> list[Path]:
    """Tables (text, Markdown, LaTeX, all runs as comma-separated values), the dataset, figures and
    captions; returns the files."""
    table = result.table
    texts = {
        "pairs.csv": study_tables.pairs(table),
        "runs.csv": result.to_csv(),
        "ledger.csv": result.ledger_csv(),
        "captions.txt": _captions(result),
    }
    files = tables.write(folder, table, kinds=("txt", "md", "tex"))
    if len(result.plan.problems) >= MANY:
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
            if name in PROFILE:
                files += style.save(_profile(result), folder, name) if result.ok.any() else []
                continue
            for law in result.plan.laws:
                files += _saved(result, folder, name, law)
    return files


def _captions(result: StudyResult) -> str:
    figures = result.plan.figures
    text = CAPTIONS.format(
        title=result.plan.title, version=archive.provenance()["versions"]["nsdyn"],
        notes="\n".join(result.table.notes), figures=", ".join(x for x in figures if x not in PROFILE),
        phases=result.plan.phases, floor=FLOOR,
    )  # fmt: skip
    return text + CAPTION_OF_PROFILE if set(PROFILE) & set(figures) else text


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
    if name not in KINDS:
        raise unknown("figure", name, KINDS)
    if law not in result.plan.laws:
        raise unknown("law", law, result.plan.laws)
    with style.use():
        if name in PROFILE:
            return _profile(result)
        return _figure(result, name, law, list(result.plan.problems))


def _profile(result: StudyResult) -> Figure:
    """Performance profiles, a panel for each cost."""
    columns = list(_drawn(result, "profile")["y"])
    columns = [x for x in columns if np.isfinite(result.data[x].values).any()] or columns[:1]
    width = style.COLUMN if len(columns) == 1 else style.DOUBLE
    fig, axes = style.figure((1, len(columns)), width, 2.9)
    for letter, ax, name in zip("abcdefghijklmnopqrstuvwxyz", axes, columns, strict=False):
        found = result.profile(name)
        end = min(max(10.0, 2 * float(found.tau[-1])), MOST_FACTOR)
        for j, (integrator, share) in enumerate(
            zip(result.plan.integrators, found.share, strict=True)
        ):
            look = _look(j) | {"marker": "", "zorder": 2 - 0.01 * j}
            seen = found.tau <= end
            tau, height = np.append(found.tau[seen], end), share[seen]
            ax.step(tau, [*height, height[-1]], where="post", label=integrator, **look)
        what = LABELS.get(name, name).partition(" [")[0]
        ax.set(
            xscale="log", xlim=(1.0, end), ylim=(-0.02, 1.02), xlabel=f"{what} / that of the best"
        )
        style.panel(ax, letter)
    axes[0].set_ylabel("share of cases")
    handles, labels = axes[0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside upper center", ncols=4 if len(columns) > 1 else 2)
    return fig


def _drawn(result: StudyResult, name: str) -> dict[str, Any]:
    """What a figure shows: as the study says, or else as usual."""
    return result.plan.figures.get(name, KINDS[name])


def _figure(result: StudyResult, name: str, law: str, problems: list[str]) -> Figure:
    chosen = _drawn(result, name)
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
