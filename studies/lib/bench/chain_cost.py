"""The cost of a serial chain against its number of links: recursions and the dense mass matrix.

Forward dynamics, v' from q, v and joint forces: by articulated bodies, or by the mass matrix and
its factorisation. The response to an impact of the tip: by Alexiou's propagation, by the law
`Restitution` with M^-1 b from the recursion, or by the law with the dense M. The chain is that of
`serial_chain`. Every evaluation runs in a compiled loop, as in a simulation, and moves q and v
slightly, so that the compiler cannot reuse results; the shortest of several loops counts. The slope
is b in the least-squares line

    log t = a + b log N                                                                          (1)

over N = 16 ... 1024; the dense path loses from the first N beyond which it is always slower.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator, ScalarFormatter
from numpy.typing import ArrayLike
from xarray import Dataset

from nsdyn import laws
from nsdyn._types import Configuration, Solve, Velocity
from nsdyn.multibody.chain import Chain, tip
from nsdyn.multibody.chain_dynamics import SYSTEM, accelerations, bias, mass_matrix
from nsdyn.multibody.chain_impulse import restitution
from nsdyn.numerics import small
from nsdyn.problems.serial_chain import links as chain_of
from nsdyn.studies.lib import archive, style
from nsdyn.studies.lib.bench.measure import Line, fastest, line

NAME = "chain_cost"
SIZES = (2, 3, 4, 5, 6, 8, 12, 16, 32, 64, 128, 256, 512, 1024)
FITTED = 16  # smallest number of links in the fit (1)
STEEPEST = 1.15
WORK = 2048  # links in a loop: short chains are evaluated more often
REPEATS = 4  # of measurements of 0.1 s, for each size and path
E = 0.5
POINT, NORMAL = np.array([1.0, 0.0, 0.0]), np.array([0.0, 0.0, 1.0])

CAPTION = """\
Cost of one evaluation of a serial chain of N links, computed with nsdyn {version} on {processor}.
Method: shortest time of several compiled loops; float64. Slopes of the fit over N >= 16 in the legend.

a) Forward dynamics. b) Response to an impact of the tip. The dotted vertical line marks the N from which the dense mass
matrix (factorisation unrolled up to 5 links, LAPACK beyond) is slower than the recursion (circles).
"""


# The paths


def _forward(chain: Chain, q: Configuration, v: Velocity) -> Velocity:
    return accelerations(chain, q, v, jnp.zeros_like(v))


def _forward_dense(chain: Chain, q: Configuration, v: Velocity) -> Velocity:
    return small.factor(mass_matrix(chain, q))(-bias(chain, q, v))


def _impulse(chain: Chain, q: Configuration, v: Velocity) -> Velocity:
    return restitution(chain, q, v, POINT, NORMAL, E).v_after


def _law(chain: Chain, q: Configuration, v: Velocity, solve: Solve | None = None) -> Velocity:
    G = jax.grad(lambda q: jnp.sum(NORMAL * tip(chain, q, POINT)))(q)
    M = mass_matrix(chain, q)  # removed by the compiler if `solve` is given
    return laws.Restitution(E).jump(M, jnp.zeros((0, chain.n)), G[None], v, solve=solve).v_after


def _law_recursive(chain: Chain, q: Configuration, v: Velocity) -> Velocity:
    return _law(chain, q, v, SYSTEM.solver(q, {"chain": chain}))


PATHS: dict[str, Callable] = {
    "forward": _forward,
    "forward_dense": _forward_dense,
    "impulse": _impulse,
    "impulse_law": _law_recursive,
    "impulse_dense": _law,
}
LABELS = {
    "forward": "articulated bodies",
    "forward_dense": "dense $M$",
    "impulse": "impulse propagation",
    "impulse_law": "law, $M^{-1}b$ by recursion",
    "impulse_dense": "law, dense $M$",
}
PANELS = (("forward", "forward_dense"), ("impulse", "impulse_law", "impulse_dense"))


# Computing


def measure(sizes: Sequence[int] = SIZES, repeats: int = REPEATS) -> dict[str, list]:
    """Seconds of one evaluation for each path and size."""
    chains = [chain_of(n, length=1.0, mass=1.0, radius=0.05, twist=0.5, g=9.81) for n in sizes]
    times = {name: [timed(path, x, x.n, repeats) for x in chains] for name, path in PATHS.items()}
    return {"links": list(sizes), **times}


def timed(path: Callable, bodies: Any, n: int, repeats: int) -> float:
    """The shortest time of one evaluation in a compiled loop.

    path: path(bodies, q, v) -> a vector like v, with n entries.
    """
    rng = np.random.default_rng(n)
    start = (0.1 * rng.normal(size=n), rng.normal(size=n))
    count = max(1, WORK // n)

    @jax.jit
    def loop(bodies: Any, state: tuple[Array, Array]) -> tuple[Array, Array]:
        def once(state: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
            q, v = state
            return (q + 1e-9 * v, v + 1e-9 * path(bodies, q, v)), None

        return jax.lax.scan(once, state, None, length=count)[0]

    run = lambda: jax.block_until_ready(loop(bodies, start))
    run()  # compiles
    return fastest(run, repeats) / count


def store(folder: str | Path, found: dict[str, list], settings: dict[str, Any]) -> Path:
    variables = {
        name: ("size", found[name], {"units": "s", "long_name": LABELS[name]}) for name in PATHS
    }
    return archive.write(
        _data(folder), NAME, {"links": ("size", found["links"]), **variables}, settings
    )


def _data(folder: str | Path) -> Path:
    return Path(folder) / "data"


def slope(links: ArrayLike, times: ArrayLike) -> float:
    """b of (1)."""
    links = np.asarray(links)
    times = np.asarray(times)
    long = links >= FITTED
    return float(np.polyfit(np.log(links[long]), np.log(times[long]), 1)[0])  # (1)


def loses_from(links: Sequence[int], dense: ArrayLike, recursion: ArrayLike) -> int | None:
    """The number of links from which the dense path is always slower; None if it wins at the
    end."""
    slower = np.asarray(dense) > np.asarray(recursion)
    first = len(slower) - int(np.argmin(slower[::-1])) if not slower.all() else 0
    return int(links[first]) if first < len(slower) else None


# Showing


def lines(found: dict[str, list]) -> list[Line]:
    """The lines of the table."""
    links = found["links"]
    span = f"{FITTED} to {links[-1]} links"
    made: list[Line] = []
    for name, title, dense in (
        ("forward", "forward dynamics", "forward_dense"),
        ("impulse", "impulse propagation", "impulse_dense"),
        ("impulse_law", "impulse by law and recursion", "impulse_dense"),
    ):
        growth = slope(links, found[name])
        from_n = loses_from(links, found[dense], found[name])
        made += [
            line(f"chain, {title}, {span}: log-log slope", growth, STEEPEST),
            line(f"chain, {title}, {links[-1]} links [us]", 1e6 * found[name][-1]),
            line(f"chain, {title}: dense M is slower from N =", from_n),
        ]
    return made


def draw(folder: str | Path) -> list[Path]:
    """Draw the archived times; returns the files written."""
    data, described = archive.read(_data(folder), NAME)
    with style.use():
        fig, axes = style.figure((1, 2), style.DOUBLE, 2.7)
        for ax, letter, names in zip(axes, "ab", PANELS, strict=True):
            style.panel(ax, letter)
            _lines(ax, data, names)
        files = style.save(fig, folder, NAME)
    text = CAPTION.format(
        version=described["versions"]["nsdyn"], processor=described["settings"]["processor"]
    )
    return [
        *files,
        archive.replace(Path(folder) / "captions.txt", lambda path: path.write_text(text, "utf-8")),
    ]


def _lines(ax: Axes, data: Dataset, names: tuple[str, ...]) -> None:
    links = data.links.values
    for k, name in enumerate(names):
        times = data[name].values
        label = f"{LABELS[name]}, slope {slope(links, times):.2f}"
        ax.loglog(links, 1e6 * times, marker=style.MARKERS[k], label=label)
    crossing = loses_from(links, data[names[-1]].values, data[names[0]].values)
    if crossing is not None:
        ax.axvline(crossing, color=style.GREY, linewidth=0.6, linestyle=(0, (1, 2)), zorder=0)
    ax.set_xlabel("links $N$")
    ax.set_ylabel("time of one evaluation [µs]")
    ax.set_xticks([2, 6, 16, 64, 256, 1024])
    ax.xaxis.set_major_formatter(ScalarFormatter())
    ax.xaxis.set_minor_locator(NullLocator())
    ax.legend(loc="upper left")
