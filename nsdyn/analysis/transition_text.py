"""A `TransitionReport` as text: tables with aligned columns."""

import numpy as np

from nsdyn.analysis.transition import REGULAR, SINGULAR, TransitionReport

MOST = 12  # largest number of values listed one by one
NOISE = 1e-13  # relative size below which a number is shown as 0
KINDS = {
    REGULAR: "regular: the rank is that of configurations nearby",
    SINGULAR: "singular: the rank drops here",
}


def text(report: TransitionReport) -> str:
    """The table that `print` shows."""
    parts = [
        report.title,
        _energies(report),
        _constraints(report),
        _impulses(report),
        _velocities(report),
    ]
    return "\n\n".join(part for part in parts if part)


def _energies(report: TransitionReport) -> str:
    T = _scale(report)
    names = ("kinetic energy T", "  constrained T_c", "  admissible T_a")
    pairs = zip(names, report.energy_before, report.energy_after, strict=True)
    rows = [(name, *(_number(x, T) for x in (a, b, b - a))) for name, a, b in pairs]
    share = "" if np.isnan(report.xi) else f"\nxi = T_c/T before: {_number(report.xi, 1.0)}"
    return table(("", "before", "after", "change"), rows) + share


def _scale(report: TransitionReport) -> float:
    return max(report.energy_before[0], report.energy_after[0])


def _constraints(report: TransitionReport) -> str:
    spaces = (("rows, rank before", report.before), ("rows, rank after", report.after))
    rows: list[tuple[str, ...]] = [
        (name, f"{len(space.G)}, {space.rank}") for name, space in spaces
    ]
    if len(report.angles):
        rows.append(("angles between them, degrees", _numbers(np.degrees(report.angles), 90.0)))
    values = report.xi_values
    along = report.xi_directions
    if len(values):
        rows.append(("stationary values of xi", _numbers(values, 1.0)))
        rows.append(("  largest, along v", _numbers(along[0])))
    if len(values) > 1:
        rows.append(("  smallest, along v", _numbers(along[-1])))
    rows.append(
        ("transition", KINDS.get(report.kind, "rows depend on each other: redundant, or singular"))
    )
    return table(None, rows, left=True)


def _impulses(report: TransitionReport) -> str:
    W = np.linalg.inv(report.M)
    T = _scale(report)
    rows = []
    for name, impulse in report.impulses.items():
        sizes = [
            float(0.5 * f @ W @ f) for f in (impulse.total, impulse.constrained, impulse.admissible)
        ]
        rows.append((name, *(_number(x, T) for x in (*sizes, impulse.work))))
    change = report.energy_after[0] - report.energy_before[0]
    rows.append(("all", "", "", "", _number(change, T)))
    head = ("impulse f", "f M^-1 f / 2", "constrained", "admissible", "energy brought")
    lines = [table(head, rows)]
    largest = np.abs(report.Lam).max(initial=0.0)
    for name, values, scale in (
        ("Lam", report.Lam, largest),
        ("Lam_N", report.Lam_N, largest),
        ("beta", report.beta, 0),
    ):
        if np.any(np.abs(values) > NOISE * scale):
            lines.append(f"{name} = {_numbers(values, scale)}")
    return "\n".join(lines)


def _velocities(report: TransitionReport) -> str:
    if len(report.M) > MOST:
        return ""
    before, after = (np.stack([v, *report.split(v)]) for v in (report.v_before, report.v_after))
    values = np.concatenate([before, after]).T
    rows = [
        (f"v[{i}]", *(_number(x, np.abs(values).max()) for x in row))
        for i, row in enumerate(values)
    ]
    return table(
        ("", "before", "constrained", "admissible", "after", "constrained", "admissible"), rows
    )


def _number(x: float, scale: float) -> str:
    return f"{x:.6g}" if abs(x) > NOISE * scale else "0"


def _numbers(values: np.ndarray, scale: float | None = None) -> str:
    scale = np.abs(values).max() if scale is None else scale
    shown = [_number(x, scale) for x in values]
    return "  ".join(shown[:MOST]) + (f"  ... ({len(shown)} in all)" if len(shown) > MOST else "")


def table(head: tuple[str, ...] | None, rows: list[tuple[str, ...]], left: bool = False) -> str:
    """Aligned columns: the first left, the others right or, with `left`, left too."""
    lines = rows if head is None else [head, *rows]
    widths = [max(len(line[k]) for line in lines) for k in range(len(lines[0]))]
    place = lambda k, cell: cell.ljust(widths[k]) if left or k == 0 else cell.rjust(widths[k])
    return "\n".join(
        "  ".join(place(k, cell) for k, cell in enumerate(line)).rstrip() for line in lines
    )
