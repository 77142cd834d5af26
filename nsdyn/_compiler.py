"""One option of XLA's compiler that makes time steps of a few bodies fast.

By default XLA runs the body of a loop as a schedule of small kernels. If it compiles each small
loop of a run to a single function instead, a run takes a third to a half of the time (3R pendulum,
event-driven RK4: 1.1 us per step instead of 3.4). The option is not available among the
`compiler_options` of a single program; XLA reads it once, when JAX starts its backend, from the
environment variable XLA_FLAGS. So `tune_xla` sets it there when nsdyn is imported, and
`leave_environment` removes it at the first use of nsdyn, once JAX has read it: other processes do
not see it.
"""

import os
import warnings

from nsdyn.errors import PerformanceWarning

FLAG = "xla_backend_extra_options"
OPTION = f"--{FLAG}=xla_cpu_small_while_loop_byte_threshold=100000"
SWITCH_OFF = "NSDYN_TUNE_XLA"


class _State:
    """What nsdyn has done to the environment of this process."""

    before: str | None = None  # XLA_FLAGS as it was
    pending = False  # the option waits in the environment
    too_late = False  # JAX had started before


def tune_xla() -> bool:
    """Ask XLA for fast small loops; importing nsdyn does so. Returns False if it has no effect: JAX
    has already started, XLA_FLAGS sets the option itself, or NSDYN_TUNE_XLA=0 forbids it."""
    if os.environ.get(SWITCH_OFF) == "0" or FLAG in os.environ.get("XLA_FLAGS", ""):
        return False
    if _jax_has_started():
        _State.too_late = True
        return False
    _State.before = os.environ.get("XLA_FLAGS")
    _State.pending = True
    os.environ["XLA_FLAGS"] = f"{_State.before or ''} {OPTION}".strip()
    return True


def leave_environment() -> None:
    """Let JAX read the option, then restore the environment."""
    if not _State.pending:
        return
    import jax

    _State.pending = False
    jax.devices()
    if _State.before is None:
        os.environ.pop("XLA_FLAGS", None)
    else:
        os.environ["XLA_FLAGS"] = _State.before


def warn_if_untuned() -> None:
    """Warn once that runs are slower than they could be."""
    if _State.too_late:
        _State.too_late = False
        warnings.warn(
            "JAX had started before nsdyn was imported, so runs take two to four times as long as "
            "they could. Import nsdyn before the first computation with JAX",
            PerformanceWarning,
            stacklevel=3,
        )


def _jax_has_started() -> bool:
    from jax._src import xla_bridge  # JAX has no public way to ask

    try:
        return xla_bridge.backends_are_initialized()
    except AttributeError:
        return False
