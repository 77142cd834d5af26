"""The laws that each integrator accepts, found by asking every variant of every integrator and law.

A variant is a choice of the settings that are fixed at compile time: strings from a list, and truth
values. Integrators are asked for switching bilateral constraints and for `Contact`; laws for the
three kinds of mode changes, on a particle in space. Impact laws, which decide about `Contacts`,
have a table of their own.
"""

import dataclasses
import inspect
import itertools
import typing
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

import nsdyn
from nsdyn import integrators, laws
from nsdyn._types import AnyTime, Configuration, Jacobian, Params, RowMask, Rows, Scalar
from nsdyn.laws.base import AbstractLaw, ModeChange
from nsdyn.status import Status
from nsdyn.stepping.integrator import AbstractSmoothMethod, as_integrator

SOME = 0.5  # for numbers without a default: a position, a coefficient of restitution
# other required settings of laws
CHOSEN = {"tangents": [[1.0, 0.0, 0.0]], "mu": SOME, "matrix": [[SOME]]}


class Table(NamedTuple):
    """Head, rows, and the notes that numbers in the cells refer to."""

    head: tuple[str, ...]
    rows: list[tuple[str, ...]]
    notes: list[str]

    def markdown(self) -> str:
        lines = [self.head, ("---",) * len(self.head), *self.rows]
        text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        return text + "".join(f"\n\n({i}) {note}" for i, note in enumerate(self.notes, 1))


def markdown() -> str:
    """All tables, as in docs/concepts."""
    return "\n\n".join(table.markdown() for table in (pairs(), switches(), impacts()))


def variants(cls: type) -> list[Any]:
    """All variants of a class, the default first."""
    names, values = zip(*_choices(cls).items(), strict=True) if _choices(cls) else ((), ())
    return [cls(**dict(zip(names, chosen, strict=True))) for chosen in itertools.product(*values)]


def _choices(cls: type) -> dict[str, list[Any]]:
    hints = typing.get_type_hints(cls)
    return {field.name: _values(field, hints[field.name]) for field in dataclasses.fields(cls)}


def _values(field: dataclasses.Field, hint: Any) -> list[Any]:
    if hint is AbstractSmoothMethod:
        return [
            method
            for cls in _exported(integrators, AbstractSmoothMethod)
            for method in variants(cls)
        ]
    if field.name in CHOSEN:
        return [CHOSEN[field.name]]
    if field.default_factory is not dataclasses.MISSING:
        return [field.default_factory()]
    if field.default is dataclasses.MISSING:
        return [SOME]
    if hint is bool:
        return [field.default, not field.default]
    listed = typing.get_args(hint) if typing.get_origin(hint) is typing.Literal else ()
    return [field.default, *(value for value in listed if value != field.default)]


def _exported(package: Any, base: type) -> list[type]:
    classes = [getattr(package, name) for name in sorted(package.__all__)]
    whole = [c for c in classes if isinstance(c, type) and not inspect.isabstract(c)]
    return [c for c in whole if issubclass(c, base)]


def _mode_change_laws() -> list[type]:
    """The laws that decide about mode changes themselves, unlike those for impacts of contacts."""
    found = _exported(laws, AbstractLaw)
    return [cls for cls in found if not issubclass(cls, laws.AbstractImpactLaw)]


# Integrators and laws


def _line(q: Configuration, t: AnyTime, p: Params) -> Rows:
    return q[:1]


def _side(q: Configuration, p: Params) -> Scalar:
    return q[1]


CONSTRAINTS = {
    "switching": (nsdyn.Switching(modes=(_line, None), switches=(_side,)),),
    "Contact": (nsdyn.Contact(_line),),
}


def refusals(integrator: Any, law: AbstractLaw) -> tuple[str | None, ...]:
    """Why the integrator rejects the law, for each kind of constraint; None if it accepts it."""
    driven = as_integrator(integrator)
    assert driven is not None
    return tuple(driven.incompatibility(law, parts) for parts in CONSTRAINTS.values())


def pairs() -> Table:
    """Laws down, integrators across; every variant of both is asked."""
    rules = [law for cls in _mode_change_laws() for law in variants(cls)]
    able = [cls for cls in _exported(integrators, eqx.Module) if _goes_by_itself(cls)]
    across = _merged(able, lambda x: tuple(refusals(x, law) for law in rules))
    columns = {title: members[0] for title, (members, _) in across.items()}
    answers = lambda law: tuple(refusals(x, law) for x in columns.values())
    down = _merged(_mode_change_laws(), answers)
    notes: list[str] = []
    rows = [
        (f"`{title}`", *(_cell(answer, notes) for answer in answers))
        for title, (_, answers) in down.items()
    ]
    return Table(("law", *(f"`{title}`" for title in columns)), rows, notes)


def _goes_by_itself(cls: type) -> bool:
    return as_integrator(variants(cls)[0]) is not None


def _merged(
    classes: list[type], answer: Callable[[Any], tuple]
) -> dict[str, tuple[list[Any], tuple]]:
    """Variants of one class with the same answer, under one title, and that answer."""
    found: dict[str, tuple[list[Any], tuple]] = {}
    for cls in classes:
        alike: dict[tuple, list[Any]] = {}
        for variant in variants(cls):
            alike.setdefault(answer(variant), []).append(variant)
        found |= {_title(cls, members): (members, answers) for answers, members in alike.items()}
    return found


def _title(cls: type, members: list[Any]) -> str:
    """The class with the settings that distinguish these variants from the others."""
    told = []
    for name, values in _choices(cls).items():
        shown = [
            value
            for value in values
            if any(np.array_equal(getattr(member, name), value) for member in members)
        ]
        if len(shown) < len(values):
            told.append(f"{name}={' or '.join(map(repr, shown))}")
    return f"{cls.__name__}({', '.join(told)})" if told else cls.__name__


def _cell(answers: tuple[str | None, ...], notes: list[str]) -> str:
    reasons = [reason for reason in answers if reason is not None]
    notes.extend(reason for reason in dict.fromkeys(reasons) if reason not in notes)
    numbers = " ".join(f"({i + 1})" for i in sorted({notes.index(reason) for reason in reasons}))
    if not reasons:
        return "yes"
    if len(reasons) == len(answers):
        return f"no {numbers}"
    takes = next(kind for kind, reason in zip(CONSTRAINTS, answers, strict=True) if reason is None)
    return f"{takes} only {numbers}"


# Laws and mode changes

KINDS = ("exchanged", "added", "`Contact` closes")
# Rows before and after, and which are live, for each kind; all of one shape, so that each law is
# one program.
BEFORE = np.array([[[1.0, 0.0, 0.0]]] * 3)
AFTER = np.array(
    [[[0.8, 0.6, 0.0], [0.0] * 3], [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], [[0.0] * 3, [0.0, 0.0, 1.0]]]
)
ON_BEFORE = np.array([[True], [True], [False]])
ON_AFTER = np.array([[True, False], [True, True], [False, True]])
VELOCITY = np.array([0.0, 1.0, -1.0])


def switches() -> Table:
    """What each law does when constraints are exchanged or added, and when a contact closes."""
    found = _merged(_mode_change_laws(), _answers)
    return Table(
        ("law", *KINDS), [(f"`{title}`", *answers) for title, (_, answers) in found.items()], []
    )


def _answers(law: AbstractLaw) -> tuple[str, ...]:
    """For each kind, the status with which a run would end, or "yes". Only a contact may
    rebound."""
    rebounds = Status.OK if law.satisfies_new_constraints else Status.LAW_VIOLATES
    codes = [
        code or rebounds * ("Contact" not in kind)
        for code, kind in zip(_objections(law), KINDS, strict=True)
    ]
    return tuple("yes" if code == Status.OK else f"`{Status(code).name}`" for code in codes)


def _objections(law: AbstractLaw) -> list[int]:
    def one(before: Jacobian, after: Jacobian, on_before: RowMask, on_after: RowMask) -> Array:
        change = ModeChange.of(
            jnp.eye(3), before, after, VELOCITY, on_before=on_before, on_after=on_after
        )
        return jnp.asarray(law.failure_code(change), int)

    return jax.jit(jax.vmap(one))(BEFORE, AFTER, ON_BEFORE, ON_AFTER).tolist()


# Impact laws


def impacts() -> Table:
    """Impact laws: whether time-stepping schemes take them, and whether they can create energy."""
    rows: list[tuple[str, ...]] = []
    notes: list[str] = []
    for cls in _exported(laws, laws.AbstractImpactLaw):
        reason = cls.unfit_for_time_steps  # type: ignore[attr-defined]
        takes = "yes" if reason is None else f"no ({len(notes) + 1})"
        notes += [] if reason is None else [reason]
        gains = "yes" if cls.can_gain_energy else "no"  # type: ignore[attr-defined]
        rows.append((f"`{cls.__name__}`", takes, gains))
    head = ("impact law", "`MoreauJean`, `NSGA`", "can create energy")
    return Table(head, rows, notes)
