"""What a problem's functions return, found by abstract evaluation: nothing is computed or
compiled."""

import jax
import jax.numpy as jnp
import numpy as np

from nsdyn._signature import label
from nsdyn.constraints.contact import Contact
from nsdyn.constraints.fixed import Fixed, Nonholonomic
from nsdyn.constraints.mode_rows import Lock
from nsdyn.constraints.scheduled import Scheduled, check_times
from nsdyn.constraints.switching import Switching
from nsdyn.constraints.transitions import Transitions
from nsdyn.errors import ProblemError
from nsdyn.mechanics.model import Model
from nsdyn.mechanics.system import _Lagrangian
from nsdyn.problem import Problem, as_arrays

HINTS = (
    (jax.errors.TracerArrayConversionError, "; use jax.numpy where the function uses numpy"),
    (
        jax.errors.ConcretizationTypeError,
        "; use jnp.where or jax.lax.cond where the function uses if on a value",
    ),
)


def inputs(problem: Problem, q0, v0, params):
    """q, v and p of a run: the problem's own, or overrides of the same shapes. All finite."""
    q, v = _override("q0", q0, problem.q0), _override("v0", v0, problem.v0)
    if problem.system.kinematics is None and q.shape != v.shape:
        raise ProblemError(
            f"q0, v0: expected the same size, as q' = v, found {q.shape[0]} and {v.shape[0]} "
            "entries; "
            "for quasi-velocities give System(kinematics=...)"
        )
    p = problem.params if params is None else _override_params(as_arrays(params), problem.params)
    for path, leaf in jax.tree_util.tree_flatten_with_path(p)[0]:
        name = "params" + jax.tree_util.keystr(path)
        if not isinstance(leaf, jax.Array):
            raise ProblemError(
                f"{name}: expected a number or an array, found {leaf!r}; keep it out of params"
            )
        _concrete(name, leaf)
        if jnp.issubdtype(leaf.dtype, jnp.inexact):
            finite(name, leaf)
    finite("q0", q)
    finite("v0", v)
    return q, v, p


def _concrete(name, leaf):
    if isinstance(leaf, jax.core.Tracer):
        raise ProblemError(
            f"{name}: expected numbers, found a traced value; inside jit, vmap or grad call "
            "nsdyn.rollout, not simulate"
        )


def _override(name, value, own):
    _concrete(name, own if value is None else value)
    if value is None:
        return own
    try:
        array = jnp.asarray(value, float)
    except (TypeError, ValueError) as error:
        raise ProblemError(f"{name}: expected {own.shape[0]} numbers, found {value!r}") from error
    if array.shape != own.shape:
        raise ProblemError(
            f"{name}: expected shape {own.shape}, that of the problem's own {name}, found "
            f"{array.shape}"
        )
    return array


def _override_params(p, own):
    flat = lambda tree: {
        jax.tree_util.keystr(k): x for k, x in jax.tree_util.tree_flatten_with_path(tree)[0]
    }
    found, wanted = flat(p), flat(own)
    structure, known = str(jax.tree.structure(p)), str(jax.tree.structure(own))
    if structure != known:
        missing, extra = sorted(wanted.keys() - found.keys()), sorted(found.keys() - wanted.keys())
        differ = [
            f"{what}: {', '.join(keys)}"
            for what, keys in (("missing", missing), ("unknown", extra))
            if keys
        ]
        raise ProblemError(
            f"params: expected the structure of the problem's own params, {known}, found "
            f"{structure}{' (' + '; '.join(differ) + ')' if differ else ''}"
        )
    for key, leaf in found.items():
        if np.shape(leaf) != np.shape(wanted[key]):
            raise ProblemError(
                f"params{key}: expected shape {np.shape(wanted[key])}, that of the problem's own "
                "params, "
                f"found {np.shape(leaf)}; for a batch of values use nsdyn.sweep"
            )
    return p


def finite(name, value, where=""):
    """Raise if an entry of `value` is infinite or NaN."""
    value = np.asarray(value)
    if not np.all(np.isfinite(value)):
        index = tuple(int(i) for i in np.argwhere(~np.isfinite(value))[0])
        entry = f"{value[index]} at index {list(index)}" if index else f"{value[()]}"
        raise ProblemError(f"{name}: expected finite numbers{where}, found {entry}")


def returned(argument: str, function, *args, name=None):
    """What `function` returns, abstractly; what it raises comes out as a ProblemError."""
    try:
        return jax.eval_shape(function, *args)
    except ProblemError:
        raise
    except Exception as error:
        hint = next(
            (text for kind, text in HINTS if isinstance(error, kind)), _about_params(error, args)
        )
        first = (str(error).strip().splitlines() or [""])[0]
        raise ProblemError(
            f"{argument}: the function {name or label(function)} raised {type(error).__name__}: "
            f"{first}{hint}"
        ) from error


def _about_params(error, args) -> str:
    """Whether a name is missing in the parameters, the last argument but for a mode and what is
    held."""
    if isinstance(error, KeyError):
        names = next((list(x) for x in reversed(args) if isinstance(x, dict)), None)
        return "" if names is None else f"; params has the names {names}"
    return (
        "; params is None" if isinstance(error, TypeError) and any(x is None for x in args) else ""
    )


def _array(argument, function, *args, name=None):
    out = returned(argument, function, *args, name=name)
    if not isinstance(out, jax.ShapeDtypeStruct):
        raise ProblemError(
            f"{argument}: the function {name or label(function)} returned a {type(out).__name__}, "
            "expected an array; "
            "put its entries together with jnp.stack or jnp.concatenate"
        )
    return out


def shaped(argument, function, shape, why, *args, name=None):
    out = _array(argument, function, *args, name=name)
    if out.shape != shape:
        raise ProblemError(
            f"{argument}: the function {name or label(function)} returned shape {out.shape}, "
            f"expected {shape}, {why}"
        )


def scalar(argument, function, *args):
    out = _array(argument, function, *args)
    if out.shape not in ((), (1,)):
        raise ProblemError(
            f"{argument}: the function {label(function)} returned shape {out.shape}, expected a "
            "scalar"
        )


def vector(argument, function, *args, name=None) -> int:
    """The number of rows of a function that returns a vector; a scalar is one row."""
    out = _array(argument, function, *args, name=name)
    if len(out.shape) > 1:
        raise ProblemError(
            f"{argument}: the function {name or label(function)} returned shape {out.shape}, "
            "expected a vector (m,), "
            "one entry for each row"
        )
    if not jnp.issubdtype(out.dtype, jnp.integer) and not jnp.issubdtype(out.dtype, jnp.floating):
        raise ProblemError(
            f"{argument}: the function {name or label(function)} returned values of type "
            f"{out.dtype}, expected real numbers"
        )
    return out.shape[0] if out.shape else 1


def shapes(problem: Problem, q, v, t, p) -> Model:
    """The model of a problem whose functions all return what they should."""
    _system(problem.system, q, v, t, p)
    for part in problem.constraint:
        _part(part, q, v, t, p)
    try:
        model = Model.of(problem.system, problem.constraint, q, v, t, p)
    except ProblemError:
        raise
    except Exception as error:
        raise ProblemError(
            f"Problem(constraint=...): expected rows that can be differentiated, found {error}"
        ) from error
    mode = jax.eval_shape(lambda q, v, t, p: model.start(q, v, t, p).mode, q, v, t, p)
    why, name = _why(v), label(problem.system.force)
    shaped("System(force=...)", problem.system.forces, v.shape, why, q, v, t, p, mode, name=name)
    return model


def _why(v):
    return f"as v0 has {v.shape[0]} entries"


def _system(system, q, v, t, p):
    n = v.shape[0]
    if system.kinematics is not None:
        shaped("System(kinematics=...)", system.kinematics, q.shape, "the shape of q0", q, v, p)
    lagrangian = getattr(system.mass, "__self__", None)
    if isinstance(lagrangian, _Lagrangian):
        shaped("System.from_lagrangian(kinetic=...)", lagrangian.kinetic, (), "a scalar", q, v, p)
        if lagrangian.applied is not None:
            shaped(
                "System.from_lagrangian(applied=...)", lagrangian.applied, (n,), _why(v), q, v, t, p
            )
    if system.potential is not None:
        shaped("System(potential=...)", system.potential, (), "a scalar", q, p)
    shaped("System(mass=...)", system.mass, (n, n), _why(v), q, p)
    if system.solve is not None:
        shaped("System(solve=...)", system.solve, (n,), "the shape of b", q, v, p)
    if system.momentum is not None:
        shaped("System(momentum=...)", system.momentum, (n,), "the shape of v", q, v, p)


def _part(part, q, v, t, p):
    """The functions of one constraint."""
    match part:
        case Fixed():
            vector("Fixed(g=...)", part.g, q, t, p)
        case Nonholonomic():
            vector("Nonholonomic(c=...)", part.c, q, v, t, p)
        case Contact():
            vector("Contact(gap=...)", part.gap, q, t, p)
        case Switching():
            _items("Switching(modes=...)", part.mode_rows, q, t, p)
            for z in part.switches:
                scalar("Switching(switches=...)", z, q, p)
        case Scheduled():
            _items("Scheduled(stages=...)", part.mode_rows, q, t, p)
            if part.times_of is not None:
                vector(
                    "Scheduled(times=...)",
                    lambda p: jnp.asarray(part.times_of(p), float),
                    p,
                    name=label(part.times_of),
                )
                check_times(np.asarray(part.switch_times(p)), len(part.mode_rows.modes))
        case Transitions():
            _transitions(part, q, v, t, p)


def _items(argument, blocks, q, t, p):
    for item in blocks.items:
        if isinstance(item, Lock):
            value = item.target if callable(item.target) else item.value
            vector(f"{argument[:-4]}lock(...))", value, q, p, name=item.name())
        else:
            vector(argument, item, q, t, p)


def _transitions(part: Transitions, q, v, t, p):
    mode = part.mode0
    held = () if part.hold_of is None else returned("Transitions(hold=...)", part.hold_of, q, t, p)
    m = vector("Transitions(rows=...)", part.rows_of, q, t, p, mode, held)
    k = vector("Transitions(guards=...)", part.guards_of, q, v, jnp.zeros(m), t, p, mode, held)
    if part.live_of is not None:
        live = lambda mode, p: jnp.asarray(part.live_of(mode, p), bool)
        shaped(
            "Transitions(live=...)",
            live,
            (m,),
            f"as rows has {m} entries",
            mode,
            p,
            name=label(part.live_of),
        )
    after = lambda *args: jnp.asarray(part.after_of(*args), int)
    args = (jnp.zeros(k, bool), q, v, t, p, mode)
    shaped(
        "Transitions(after=...)",
        after,
        mode.shape,
        "the shape of mode0",
        *args,
        name=label(part.after_of),
    )
