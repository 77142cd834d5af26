"""Names for the types of arguments, one for each kind of quantity.

The letters in the shapes mean the same everywhere: nq coordinates, n velocities, m rows, k guards.
jaxtyping compares them within one call, so two arguments with the same letter have the same size.
Types with "Any" in their name accept arrays of numpy too, as reports, checks and users pass them.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Int

AnyArray = Array | np.ndarray
Abstract = Array | jax.ShapeDtypeStruct  # an array, or only its shape and type

Params = Any  # the parameters p: any pytree
Held = Any  # what a constraint stored at its last mode change: any pytree

Configuration = Float[Array, " nq"]  # q, and its rate q'
AnyConfiguration = Float[AnyArray, " nq"]
Velocity = Float[Array, " n"]  # v, and accelerations, forces and applied impulses
AnyVelocity = Float[AnyArray, " n"]
Time = Float[Array, ""]
AnyTime = Float[AnyArray, ""] | float
Scalar = Float[Array, ""]
Number = Float[Array, ""] | float | int  # a step, a tolerance, a fraction
Mode = Int[Array, "*mode"]
AnyMode = Int[AnyArray, "*mode"] | int | np.integer

Rows = Float[Array, " m"]  # residuals, rates and multipliers of the rows
RowMask = Bool[Array, " m"]
Jacobian = Float[Array, "m n"]
Matrix = Float[Array, "n n"]
Guards = Float[Array, " k"]
GuardMask = Bool[Array, " k"]
Flag = Bool[AnyArray, ""] | bool | np.bool_
Code = Int[AnyArray, ""] | int | np.integer  # a status, or a law's own reason

Numbers = Any  # an array, or nested sequences of numbers as users write them
Solve = Callable[[Array], Array]  # b -> M^-1 b, for a vector or a matrix of columns
