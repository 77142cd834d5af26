"""`Blended`: constraints that fade into each other, the smoothed baseline of `Switching`.

The Heaviside step of (1) and (2) in `nsdyn.constraints.switching` is replaced by

    s(z) = (1 + tanh(sigma z))/2                                                                 (1)

so that with two modes and one z, or with k modes and k switching functions,

    g = (1 - s(z)) g_1 + s(z) g_2,    g = sum_i [prod_{j != i} (1 - s(z_j))] s(z_i) g_i          (2)

There is one mode, no event and no impulse: the mechanism goes round the corner on a smooth curve,
without loss of energy, however large sigma is. The curvature grows with sigma, and steps must
resolve lengths of 1/sigma. This is not what happens at a hard switch, where the impulse law decides
about the energy; it is here to be compared with it. A start must satisfy (2), not its mode alone.
"""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nsdyn import _expect as expect
from nsdyn._signature import label, require_function
from nsdyn._types import (
    Abstract,
    AnyConfiguration,
    Configuration,
    Held,
    Mode,
    Params,
    RowMask,
    Rows,
    Time,
    Velocity,
)
from nsdyn.constraints.base import AbstractConstraint
from nsdyn.errors import ProblemError


class Blended(AbstractConstraint):
    """Constraints that fade into each other where a switching function changes its sign: the
    smoothed baseline of `Switching`, without events and impulses.

    modes: for each mode a function g(q, t, p) -> scalar or (m,), all with the same number of rows.
    switches: the switching functions, as in `Switching`: one z(q, p) for two modes, or one for each
        mode.
    sigma: how steep the step is; it takes 1/sigma in units of z. A number, which compiles nothing
        anew.
    """

    modes: tuple[Callable, ...] = eqx.field(static=True)
    switches: tuple[Callable, ...] = eqx.field(static=True)
    sigma: Any

    def __init__(
        self, modes: Sequence[Callable], switches: Sequence[Callable], sigma: float
    ) -> None:
        self.modes = tuple(modes)
        self.switches = tuple(switches)
        for g in self.modes:
            require_function("Blended", "modes", g, 3, "g(q, t, p) -> (m,)")
        for z in self.switches:
            require_function("Blended", "switches", z, 2, "z(q, p) -> scalar")
        counts = {1, 2} if len(self.modes) == 2 else {len(self.modes)}
        if len(self.modes) < 2 or len(self.switches) not in counts:
            raise ProblemError(
                "Blended(modes=..., switches=...): expected two modes and one switching function, "
                f"or as many of one as of the other, found {len(self.modes)} modes and "
                f"{len(self.switches)} switching functions"
            )
        self.sigma = jnp.asarray(sigma, float)
        if np.ndim(sigma) or not np.isfinite(sigma) or not sigma > 0:
            raise ProblemError(f"Blended(sigma=...): expected a positive number, found {sigma!r}")

    @property
    def keeps_mode(self) -> bool:
        return True

    @property
    def guards_use_lam(self) -> bool:
        return False

    def weights(self, q: AnyConfiguration, p: Params) -> Float[Array, " modes"]:
        """The shares of the modes in (2)."""
        z = jnp.stack([jnp.reshape(z(q, p), ()) for z in self.switches])
        s = 0.5 * (1.0 + jnp.tanh(self.sigma * z))  # (1)
        if len(self.switches) == 1:
            return jnp.stack([1.0 - s[0], s[0]])
        others = [
            jnp.prod(jnp.stack([1.0 - s[j] for j in range(len(s)) if j != i]))
            for i in range(len(s))
        ]
        return jnp.stack(others) * s

    def rows(self, q: Configuration, t: Time, p: Params, mode: Mode, held: Held) -> Rows:
        g = jnp.stack([jnp.ravel(g(q, t, p)) for g in self.modes])
        return self.weights(q, p) @ g  # (2)

    def persists(
        self, q: Configuration, t: Time, p: Params, mode_before: Mode, mode_after: Mode
    ) -> RowMask | None:
        return jnp.ones(jnp.size(self.rows(q, t, p, mode_after, ())), bool)

    def check_shapes(
        self, q: Configuration, qdot: Abstract, v: Velocity, t: Time, p: Params
    ) -> None:
        sizes = [expect.vector("Blended(modes=...)", g, q, t, p) for g in self.modes]
        if len(set(sizes)) > 1:
            raise ProblemError(
                "Blended(modes=...): expected the same number of rows in every mode, found "
                f"{expect.listed(np.array(sizes), 4)}"
            )
        for z in self.switches:
            expect.scalar("Blended(switches=...)", z, q, p)

    @property
    def title(self) -> str:
        return " and ".join(label(g) for g in self.modes)
