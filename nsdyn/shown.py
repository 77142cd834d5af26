"""How integrators, laws and models are written: with the numbers themselves, where equinox would show their types."""

import equinox as eqx
import jax
import numpy as np


def settings_text(module) -> str:
    known = lambda x: eqx.is_array(x) and not isinstance(x, jax.core.Tracer)
    numbers = jax.tree.map(lambda x: np.asarray(x).tolist() if known(x) else x, module)
    return eqx.tree_pformat(numbers, width=10**6)
