"""Two links hit a wall: Alexiou's closed form against the O(N) recursion and against the dense law.

The closed form of section 3, for links of length L and mass m with the rates w_1, w_2 and W = 2 w_1
+ w_2,

    J = (1 + e) (7/24) m L W,  dw_1 = (1 + e) W/4,  dw_2 = -(1 + e) 3 W/2,  v_bounce = -e L W    (1)

is compared with `nsdyn.multibody.chain_impulse.restitution` and with the law `Restitution(e)` on
the dense mass matrix, as a function of e and for random e, w, m and L. Differences are relative to
the quantity; the largest of the four is shown.
"""

from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from xarray import Dataset

from nsdyn import laws, problems
from nsdyn._types import Number
from nsdyn.multibody.chain import tip
from nsdyn.multibody.chain_dynamics import mass_matrix
from nsdyn.multibody.chain_impulse import restitution
from nsdyn.studies.lib import archive, style, tables
from nsdyn.studies.lib.schemes import write
from nsdyn.studies.lib.tables import Table

CASES, SEED = 1000, 0
CURVE = 11
QUANTITIES = ("J", "dw_1", "dw_2", "v_bounce")
LABELS = (r"$J/(m L W)$", r"$\Delta w_1/W$", r"$\Delta w_2/W$", r"$v_\mathrm{bounce}/(L W)$")
WAYS = {"recursion": "O(N) recursion", "dense": "dense law"}

CAPTIONS = """\
Two links hit a fixed wall. After J. Alexiou, section 3, equations (34) to (40); computed with nsdyn {version}.

The source leaves masses, lengths and rates open; the random values are ours: e in [0, 1], w normal with deviation 3 rad/s, m
from 0.01 to 100 kg and L from 0.01 to 100 m, both log-uniform; {cases} cases.

Figure 1. a) Impulse, changes of the rates and bounce over the coefficient of restitution e, scaled with W = 2 w1 + w2: lines
closed form, markers recursion. b) Number of random cases that differ from the closed form by at most the value on the
horizontal axis, relative to the quantity; worst of the four quantities. The unit round-off is 1.1e-16.
"""


def run(folder: str | Path, cases: int = CASES, force: bool = False) -> list[Path]:
    """Compute missing data, then draw; returns the files drawn."""
    compute(folder, cases, force)
    return draw(folder)


# Computing


def compute(folder: str | Path, cases: int = CASES, force: bool = False) -> list[Path]:
    """Archive the comparison. Data with the same settings and code are kept unless `force` is
    given."""
    settings = {"cases": cases, "seed": SEED, "curve": CURVE}
    make = partial(_variables, cases)
    return [archive.update(_data(folder), "impacts", settings, make, force=force)]


def _data(folder: str | Path) -> Path:
    return Path(folder) / "data"


def closed_form(e: Number, w: Float[Array, " 2"], m: Number, L: Number) -> jax.Array:
    """(1)"""
    W = 2 * w[0] + w[1]
    return jnp.stack(
        [(1 + e) * 7 / 24 * m * L * W, (1 + e) * W / 4, -(1 + e) * 3 / 2 * W, -e * L * W]
    )


def computed(e: Number, w: Float[Array, " 2"], m: Number, L: Number) -> tuple[jax.Array, jax.Array]:
    """(1) by the recursion and by the dense law."""
    p = problems.two_link_impact(m=m, L=L, w=w).params
    chain = p["chain"]
    normal = -p["normal"]
    q = jnp.zeros(2)
    G = jax.grad(lambda q: jnp.sum(normal * tip(chain, q, p["tip"])))(q)
    response = restitution(chain, q, w, p["tip"], normal, e)
    jump = laws.Restitution(e).jump(mass_matrix(chain, q), jnp.zeros((0, 2)), G[None], w)
    answer = lambda J, v: jnp.stack([J, *(v - w), G @ v])
    return answer(response.impulse, response.v_after), answer(jump.Lam[0], jump.v_after)


def _variables(cases: int) -> dict[str, tuple]:
    rng = np.random.default_rng(SEED)
    draws = (
        rng.uniform(0, 1, cases),
        rng.normal(0, 3, (cases, 2)),
        *10 ** rng.uniform(-2, 2, (2, cases)),
    )
    ones = np.ones(CURVE)
    curve = (np.linspace(0, 1, CURVE), np.stack([ones, 0.5 * ones], axis=1), ones, ones)
    values = jax.jit(jax.vmap(lambda *case: jnp.stack([closed_form(*case), *computed(*case)])))
    e, w, m, L = (np.concatenate(pair) for pair in zip(curve, draws, strict=True))
    found = np.asarray(values(e, w, m, L))
    exact = found[:, 0]
    errors = np.abs(found[:, 1:] - found[:, :1])
    speed = 2 * np.abs(w[:, 0]) + np.abs(w[:, 1])  # without cancellation, unlike W
    size = (
        np.stack([7 / 24 * m * L * speed, speed / 4, 3 / 2 * speed, L * speed], axis=1)
        * (1 + e)[:, None]
    )
    worst = np.max(errors / size[:, None], axis=2)
    return {
        "e": ("point", e[:CURVE]),
        "exact": (("point", "quantity"), exact[:CURVE], {"long_name": ", ".join(QUANTITIES)}),
        "recursion": (("point", "quantity"), found[:CURVE, 1]),
        "dense": (("point", "quantity"), found[:CURVE, 2]),
        "difference": (("way", "case"), worst[CURVE:].T, {"long_name": "relative, worst quantity"}),
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
    fig, (left, right) = style.figure((1, 2), style.DOUBLE, 2.6)
    _over_e(left, data)
    for k, (differences, label) in enumerate(
        zip(data.difference.values, WAYS.values(), strict=True)
    ):
        look: dict[str, Any] = {
            "color": style.COLOURS[k],
            "linestyle": style.DASHES[k],
            "label": label,
        }
        right.step(np.sort(differences), np.linspace(0, 1, len(differences)), where="post", **look)
    right.set(
        xlabel="relative difference from the closed form",
        ylabel="part of the cases",
        xscale="log",
        ylim=(0, 1),
    )
    right.legend(loc="upper left")
    for ax, letter in ((left, "a"), (right, "b")):
        style.panel(ax, letter)
    return fig


def _over_e(ax: Axes, data: Dataset) -> None:
    W = 2.5  # m = L = 1, w = (1, 1/2)
    for k, label in enumerate(LABELS):
        ax.plot(data.e, data.exact[:, k] / W, color=style.COLOURS[k], linestyle=style.DASHES[k])
        look: dict[str, Any] = {
            "color": style.COLOURS[k],
            "markerfacecolor": "white",
            "label": label,
        }
        ax.plot(data.e, data.recursion[:, k] / W, style.MARKERS[k], **look)
    ax.set(
        xlabel="coefficient of restitution $e$",
        ylabel="scaled with $W$",
        xlim=(-0.02, 1.02),
        ylim=(-3.2, 2.2),
    )
    ax.legend(ncols=2, loc="upper left", columnspacing=0.8, handlelength=1.2)


def _table(data: Dataset) -> Table:
    values = zip(WAYS.values(), data.difference.values, strict=True)
    rows = [(label, f"{np.median(x):.2e}", f"{np.max(x):.2e}") for label, x in values]
    title = f"Random impacts of two links: difference from (34) to (40), {len(data.case)} cases"
    return Table(title, ("way", "median", "largest"), rows, [])
