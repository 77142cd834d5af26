"""Which impact law gives what: three balls in a row, a rocking block and a rod that falls on its
end, under the impact laws for `Contacts`.

The row of balls: equal masses, the first with the velocity 1, the others at rest and in touch. e_1
is fixed and e_2 varies. With Newton's law in both contacts the last ball is pushed, not bounced:

    Newton:     v_3 = (1 + e_1)/3
    Poisson:    v_3 = (1 + e_1)/3 + (e_2 - e_1)/3                     for e_2 >= e_1
    sequential: v_3 = (1 + e_1)(1 + e_2)/4                            if no pair collides twice (1)

The block of half width b and half height h turns about its left corner and lands on the right one.
If the left one lifts and mu is large enough, with e of both corners,

    omega+/omega- = 1 - (1 + e) (3/2) sin^2 alpha,   tan alpha = b/h                           (2)

which for e = 0 is Housner's ratio. A slender block, sin^2 alpha < 2/3, does so under all laws. In a
flat one the left corner is pressed as well, and the laws differ.

The rod of mass 1 and half length 1, inclined by 0.9 rad, falls with v = (0.483.., -1, 0) and e = 1.
With Newton's law and e_T = 0 friction creates energy, with Fremond's it does not.
"""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from xarray import Dataset

from nsdyn import laws
from nsdyn.laws import AbstractImpactLaw
from nsdyn.studies.lib import archive, style, tables
from nsdyn.studies.lib.schemes import write
from nsdyn.studies.lib.tables import Table

POINTS = 41
FIRST_E = 0.3  # e_1 of the row
SLENDER = 0.25  # b/h of the block in the table
FLAT = 3.0  # and the largest one drawn
BLOCK_E, BLOCK_MU = 0.5, 2.0
ANGLE, FALL = 0.9, 0.4830550656165783  # of the rod
MOST_MU = 0.8

LAWS: dict[str, AbstractImpactLaw] = {
    "Newton": laws.Newton(allow_energy_gain=True),
    "Fremond": laws.Fremond(),
    "Poisson": laws.Poisson(allow_energy_gain=True),
    "Sequential": laws.Sequential(allow_energy_gain=True),
}
WAVE = laws.GeneralizedNewton([[0.0, 1.0], [1.0, 0.0]])
TABLE_E2, TABLE_MU = 0.9, 0.6

CAPTIONS = """\
Which impact law gives what. Computed with nsdyn {version}, without a run: one impact each.

Figure 1. a) Three equal balls in a row, the first with velocity 1, the others at rest and in touch; e = {first_e:g} between the
first two. Velocity of the last ball over e between the last two. Fremond's law is Newton's without friction. b) A block turns about
one corner and lands on the other, with e = {block_e:g} and mu = {block_mu:g}: ratio of the rates of rotation over width by height.
The thin line is Housner's ratio, for e = 0; at b/h = 1/4 it is 31/34. c) A rod of half length 1, inclined by {angle:g} rad, falls
on its end with e = 1 and e_T = 0: ratio of the kinetic energies over mu. Above 1 the law creates energy.
"""


def run(folder: str | Path, points: int = POINTS, force: bool = False) -> list[Path]:
    """Compute missing data, then draw; returns the files drawn."""
    compute(folder, points, force)
    return draw(folder)


# Computing


def compute(folder: str | Path, points: int = POINTS, force: bool = False) -> list[Path]:
    """Archive the impacts. Data with the same settings and code are kept unless `force` is
    given."""
    settings = {
        "points": points,
        "first_e": FIRST_E,
        "block_e": BLOCK_E,
        "block_mu": BLOCK_MU,
        "angle": ANGLE,
    }
    make = partial(_variables, points)
    return [archive.update(_data(folder), "impacts", settings, make, force=force)]


def _data(folder: str | Path) -> Path:
    return Path(folder) / "data"


def cradle(law: AbstractImpactLaw, e: tuple[float, float]) -> np.ndarray:
    """The velocities of three balls after the impact."""
    H = np.array([[[-1.0, 1.0, 0.0]], [[0.0, -1.0, 1.0]]])
    return np.asarray(law.collide(np.eye(3), H, [1.0, 0.0, 0.0], e=e).v_after)


def rocking(law: AbstractImpactLaw, b: float, e: float = BLOCK_E) -> float:
    """omega+/omega- of the block with h = 1."""
    h = 1.0
    M = np.diag([1.0, 1.0, (b**2 + h**2) / 3])
    H = np.array([[[0.0, 1.0, x], [1.0, 0.0, h]] for x in (-b, b)])
    after = law.collide(M, H, [h, -b, -1.0], mu=BLOCK_MU, e=e).v_after
    return -float(after[2])


def rod(law: AbstractImpactLaw, mu: float) -> np.ndarray:
    """The work of the normal impulse and of friction on the rod, in parts of T-."""
    M = np.diag([1.0, 1.0, 1 / 3])
    H = np.array([[[0.0, 1.0, -np.cos(ANGLE)], [1.0, 0.0, np.sin(ANGLE)]]])
    v = np.array([FALL, -1.0, 0.0])
    work = law.collide(M, H, v, mu=mu, e=1.0).work
    return np.asarray(work)[0] / (0.5 * v @ M @ v)


def _variables(points: int) -> dict[str, tuple]:
    e = np.linspace(0, 1, points)
    mu = np.linspace(0, MOST_MU, points)
    b = np.linspace(0, FLAT, points + 1)[1:]
    each = lambda find, x: np.array([[find(law, value) for value in x] for law in LAWS.values()])
    last = each(lambda law, e2: cradle(law, (FIRST_E, e2))[2], e)
    balls = [cradle(law, (FIRST_E, TABLE_E2)) for law in LAWS.values()]
    elastic = [cradle(law, (1.0, 1.0)) for law in LAWS.values()]
    wave = cradle(WAVE, (0.0, 0.0))
    return {
        "e": ("point", e),
        "mu": ("point", mu),
        "b": ("point", b, {"long_name": "b/h of the block"}),
        "last": (("law", "point"), last, {"long_name": "velocity of the last ball"}),
        "turn": (("law", "point"), each(rocking, b), {"long_name": "omega+/omega-"}),
        "slender": ("law", np.array([rocking(law, SLENDER, 0.0) for law in LAWS.values()])),
        "work": (("law", "point", "part"), each(rod, mu), {"long_name": "normal, friction"}),
        "chosen": (("law", "part"), np.array([rod(law, TABLE_MU) for law in LAWS.values()])),
        "balls": (("law", "ball"), np.array(balls)),
        "elastic": (("law", "ball"), np.array(elastic)),
        "wave": ("ball", wave),
    }


# Drawing


def draw(folder: str | Path) -> list[Path]:
    """Draw the archived data; returns the files written."""
    folder = Path(folder)
    data, described = archive.read(_data(folder), "impacts")
    with style.use():
        files = style.save(_figure(data), folder, "figure_1")
    words = CAPTIONS.format(version=described["versions"]["nsdyn"], **described["settings"])
    return [
        *files,
        write(folder / "captions.txt", words),
        *tables.write(folder, _table(data)),
    ]


def _figure(data: Dataset) -> Figure:
    fig, axes = style.figure((1, 3), style.DOUBLE, 2.5)
    row, block, falls = axes
    energy = 1 + data.work.values.sum(axis=2)
    _curves(row, data.e, data.last.values)
    housner = 1 - 1.5 * data.b**2 / (1 + data.b**2)  # (2)
    block.plot(data.b, housner, color=style.GREY, linestyle="-", linewidth=0.6)
    _curves(block, data.b, data.turn.values)
    _curves(falls, data.mu, energy)
    row.set(xlabel="$e_2$", ylabel="velocity of the last ball", xlim=(0, 1), ylim=(0, 0.7))
    block.set(xlabel="$b/h$", ylabel=r"$\omega^+/\omega^-$", xlim=(0, FLAT))
    falls.axhline(1.0, color=style.GREY, linewidth=0.6, zorder=0)
    falls.set(xlabel=r"$\mu$", ylabel="$T^+/T^-$", xlim=(0, MOST_MU))
    row.legend(loc="lower right", handlelength=2.0)
    for ax, letter in zip(axes, "abc", strict=True):
        style.panel(ax, letter)
    return fig


def _curves(ax: Axes, x: Any, values: np.ndarray) -> None:
    for k, (name, y) in enumerate(zip(LAWS, values, strict=True)):
        look: dict[str, Any] = {"color": style.COLOURS[k], "linestyle": style.DASHES[k]}
        ax.plot(x, y, label=name, **look)


def _table(data: Dataset) -> Table:
    head = [
        "law",
        "balls, e = 1",
        f"balls, e = ({FIRST_E:g}, {TABLE_E2:g})",
        "block, b/h = 1/4, e = 0",
    ]
    head += [f"rod, mu = {TABLE_MU:g}: T+/T-", "normal part", "friction part"]
    balls = lambda x: " ".join(f"{round(float(v), 12) + 0.0:.4f}" for v in x)
    rows = []
    for k, name in enumerate(LAWS):
        normal, friction = (round(float(x), 12) + 0.0 for x in data.chosen.values[k])
        numbers = (data.slender.values[k], 1 + normal + friction, normal, friction)
        chosen = [balls(data.elastic.values[k]), balls(data.balls.values[k])]
        rows.append((name, *chosen, *(f"{x:.6f}" for x in numbers)))
    wave = ["GeneralizedNewton, matrix [[0, 1], [1, 0]]", balls(data.wave.values)]
    rows.append((*wave, *("",) * (len(head) - 2)))
    title = "Velocities of three balls, omega+/omega- of a block, energy of a rod after one impact"
    return Table(title, tuple(head), rows, [])
