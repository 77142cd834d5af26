"""The ledger of impacts: what the impulses of each contact did.

An impulse P of a contact, on the mechanism, does the work of (1) on the motion relative to its
surface, with the rates psi of its rows before and after the event; it splits into

    P . (psi- + psi+)/2 = w_N + w_T,     w_N = P_N (psi_N- + psi_N+)/2                         (1)
    normal loss = max(0, -w_N),   friction loss = max(0, -w_T),
    gain = max(0, w_N) + max(0, w_T)                                                           (2)

A surface that moves by itself, psi = H v + psi_t, brings -P . psi_t, and the rows G of other
constraints, with impulses Lam along -G, bring -Lam . G (v- + v+)/2. In sum

    T+ - T- = gain - normal loss - friction loss + moving + forces + others                    (3)

In a time step of size h the velocity v- of a record is the free one, which contains what the forces
f do in the step. With the step known it is taken out of (1), where psi- is then that of

    v- - h M^-1 f,    which leaves    forces = h/2 P . H M^-1 f                                (4)

Without, or in event-driven runs, h = 0.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from nsdyn._jitted import compiled_quickly
from nsdyn._types import Params, Scalar
from nsdyn.errors import ProblemError
from nsdyn.mechanics import contact_rows as contacts
from nsdyn.mechanics.model import Model
from nsdyn.numerics import small
from nsdyn.problem import Problem, as_arrays
from nsdyn.results.events import Events
from nsdyn.stepping.log import Event


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Ledger:
    """The ledger of an event as data; `print` shows it as a table. For the events of a run all
    arrays have one more axis in front.

    normal, friction: the impulses P_N, shape (k,), and P_T, shape (k, d - 1), of the contacts on
        the mechanism; P_N >= 0 presses.
    normal_loss, friction_loss, gain: the energies of (2), shape (k,).
    moving, forces, others: what moving surfaces, the forces of a time step and other constraints
        brought.
    change: the change of kinetic energy.
    names: the names of the contacts.
    """

    normal: np.ndarray
    friction: np.ndarray
    normal_loss: np.ndarray
    friction_loss: np.ndarray
    gain: np.ndarray
    moving: np.ndarray
    forces: np.ndarray
    others: np.ndarray
    change: np.ndarray
    names: tuple[str, ...]

    @property
    def missing(self) -> np.ndarray:
        """What (3) leaves unexplained: round-off."""
        lost = np.sum(self.gain - self.normal_loss - self.friction_loss, axis=-1)
        return self.change - lost - self.moving - self.forces - self.others

    def __str__(self) -> str:
        from nsdyn.analysis.transition_text import table  # needs scipy, slow to import

        if np.ndim(self.change):
            return repr(self)
        rows = [
            (name, *(f"{x:.6g}" for x in numbers))
            for name, *numbers in zip(self.names, *self._columns(), strict=True)
        ]
        rest = {
            "moving surfaces": self.moving,
            "forces of the step": self.forces,
            "other constraints": self.others,
            "change of energy": self.change,
        }
        lines = [f"{name}: {x:.6g}" for name, x in rest.items()]
        head = ("contact", "P_N", "|P_T|", "normal loss", "friction loss", "gain")
        return "\n".join([table(head, rows), *lines])

    def _columns(self) -> tuple[np.ndarray, ...]:
        rubbing = np.linalg.norm(self.friction, axis=-1)
        return self.normal, rubbing, self.normal_loss, self.friction_loss, self.gain

    def __repr__(self) -> str:
        total = lambda x: f"{np.sum(x):.6g}"
        lost = f"normal loss {total(self.normal_loss)}, friction loss {total(self.friction_loss)}"
        many = f"{len(self.change)} events, " if np.ndim(self.change) else ""
        return f"Ledger({many}{len(self.names)} contacts: {lost}, gain {total(self.gain)})"


def ledger(
    problem: Problem, events: Event | Events, params: Params = None, step: float = 0.0
) -> Ledger:
    """The ledger of an event, `solution.events[i]`, or of all events of a run, `solution.events`:
    the impulses of each contact, and the energy that they took and brought.

    Give `params` if the run used other parameters than the problem. Give `step` for the events of a
    time-stepping scheme, to take out what the forces do in the step of an impact, as far as they
    act directly and not through joints.
    """
    _require_records(events)
    p = problem.params if params is None else as_arrays(params)
    model = problem.model(p)
    if not model.has_contacts:
        raise ProblemError(
            f"ledger(problem, events): expected a problem with Contacts, found none in "
            f"{problem.name}. nsdyn.transition_report(problem, event).ledger is for other "
            "constraints"
        )
    one = isinstance(events, Event)
    records = events if isinstance(events, Event) else events.trimmed().records
    h = jnp.asarray(step, float)
    found = (_one if one else _many)(model, jax.tree.map(jnp.asarray, records), h, p)
    return Ledger(**jax.tree.map(np.asarray, found), names=_names(model))


def _require_records(events: Any) -> None:
    run = isinstance(events, Events) and not events.is_batch
    if not run and not isinstance(events, Event):
        raise ProblemError(
            "ledger(problem, events): expected an event or the events of one run, found "
            f"{events!r}. For a sweep take solution.events[i]"
        )


def _names(model: Model) -> tuple[str, ...]:
    shapes = zip(model.parts, model.mode_shapes, strict=True)
    each = [(part, shape[0]) for part, shape in shapes if part.unilateral]
    return tuple(f"{part.title}[{i}]" for part, k in each for i in range(k))


def _entries(model: Model, event: Event, h: Scalar, p: Params) -> dict[str, Any]:
    point = model.point_at(event.t, event.q, event.v_before, event.mode_after, p)
    at_rest = model.psi(point.replace(v=jnp.zeros_like(point.v)), p)
    P = 0.0 - contacts.padded(model, event.Lam)
    mean = small.matvec(event.direction, 0.5 * (event.v_before + event.v_after))
    drift = contacts.padded(model, at_rest)
    drift = jnp.where(jnp.any(P != 0, axis=1)[:, None], drift, 0.0)
    push = model.system.solver(point.q, p)(model.force(point, p))
    forces = 0.5 * h * P * contacts.padded(model, small.matvec(event.direction, push))  # (4)
    work = P * (contacts.padded(model, mean) + drift) - forces  # (1)
    normal = work[:, 0]
    tangential = jnp.sum(work[:, 1:], axis=1)
    part = lambda x: jnp.maximum(x, 0.0)
    others = jnp.where(contacts.is_contact(model), 0.0, -event.Lam * mean)
    return {
        "normal": P[:, 0],
        "friction": P[:, 1:],
        "normal_loss": part(-normal),
        "friction_loss": part(-tangential),
        "gain": part(normal) + part(tangential),  # (2)
        "moving": jnp.sum(-P * drift),
        "forces": jnp.sum(forces),
        "others": jnp.sum(others),
        "change": event.kinetic_after - event.kinetic_before,
    }


@compiled_quickly
def _one(model: Model, event: Event, h: Scalar, p: Params) -> dict[str, Array]:
    return _entries(model, event, h, p)


@compiled_quickly
def _many(model: Model, events: Event, h: Scalar, p: Params) -> dict[str, Array]:
    return jax.vmap(lambda event: _entries(model, event, h, p))(events)
