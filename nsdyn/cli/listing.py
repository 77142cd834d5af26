"""The tables of `nsdyn list`: what nsdyn has, what installed packages bring, what is in a file."""

import inspect
import re
import sys
from collections.abc import Iterator
from typing import Any

from nsdyn.cli.console import show_table
from nsdyn.cli.parse import signature
from nsdyn.errors import NsdynError, ProblemError

KINDS = ("integrators", "laws")


def show_problems() -> None:
    """The problems of nsdyn and of installed packages."""
    from nsdyn import problems

    named = [*problems.names(), "from_mjcf", "from_urdf"]
    rows = [(name, problems.summary(name)) for name in named]
    rows += [row for package in problems.packages() for row in _package_rows(package)]
    show_table("problems", ("name", "description"), rows)


LONG = ("name", "q", "rows", "guards", "modes", "tags", "source", "reference, and what agrees")


def long_rows(source: str) -> list[tuple[str, ...]]:
    """Sizes and references of all problems of nsdyn, or of a file or a package."""
    from nsdyn import problems

    return [_long_row(name) for name in problems.names(source or None)]


def _long_row(name: str) -> tuple[str, ...]:
    from nsdyn import problems

    problem = problems.get(name)
    model = problem.model()
    about = problems.about(name)
    sizes = (str(len(problem.q0)), str(model.m), str(model.k), _modes(problem))
    return (name, *sizes, ", ".join(about.tags), about.source, _reference(name))


def _modes(problem: Any) -> str:
    """How many modes there are, "many" where only the constraint knows."""
    from nsdyn import Contact, Fixed, Nonholonomic, Scheduled, Switching

    count = 1
    for part in problem.constraint:
        if isinstance(part, Switching | Scheduled):
            count *= len(part.mode_rows.modes)
        elif isinstance(part, Contact):
            gaps = part.gap(problem.q0, problem.t0, problem.params)
            count *= 2**gaps.size
        elif not isinstance(part, Fixed | Nonholonomic):
            return "many"
    return str(count)


def _reference(name: str) -> str:
    """Who computed it, to what tolerance, with which law, and the runs that agree."""
    from nsdyn import problems

    known = problems.reference(name)
    if known is None:
        return ""
    law = f" with {known.law}" if known.law else ""
    runs = [f"{x.integrator} in {x.steps}: {x.error:g}" for x in known.agrees]
    return "; ".join([f"{known.source}{law}, to {known.tolerance:g}", *runs])


def _package_rows(package: str) -> list[tuple[str, str]]:
    """A package that cannot be imported is shown with the reason; the others are still there."""
    from nsdyn import problems

    try:
        return [(name, problems.summary(name)) for name in problems.names(package)]
    except NsdynError as error:
        return [(f"{package}:", str(error))]


def show_classes(kind: str, known: dict[str, type]) -> None:
    """Integrators or laws of nsdyn, then those of installed packages."""
    from nsdyn import _named

    rows = [(signature(cls), first_sentence(cls)) for cls in known.values()]
    for package in sorted(_named.installed(kind)):
        try:
            rows += _class_rows(kind, package)
        except NsdynError as error:
            rows.append((f"{package}:", str(error)))
    show_table(kind, ("name and settings", "description"), rows)


def show_source(source: str) -> None:
    """What is in a file or a package."""
    tables = {"problems": _problem_rows(source)}
    for kind in KINDS:
        tables[kind] = list(_class_rows(kind, source)) if _brings(kind, source) else []
    if not any(tables.values()):
        raise ProblemError(
            f"{source}: expected functions that return nsdyn.Problem(...), integrators or laws, "
            "found none; annotate a function `-> nsdyn.Problem` if it calls another that makes it"
        )
    for kind, rows in tables.items():
        if rows:
            show_table(f"{kind} in {source}", ("name and settings", "description"), rows)


def _brings(kind: str, source: str) -> bool:
    from nsdyn import _named

    return source.endswith(".py") or source in _named.installed(kind)


def _problem_rows(source: str) -> list[tuple[str, str]]:
    from nsdyn import _named, problems

    others = any(_brings(kind, source) for kind in KINDS)
    if source not in _named.installed("problems") and others and not source.endswith(".py"):
        return []
    rows = []
    for name in problems.names(source):
        make = problems.function(name)
        settings = _settings(make) if inspect.isfunction(make) else ""
        rows.append((f"{name}{settings}", problems.summary(name)))
    return rows


def _settings(make: Any) -> str:
    parts = inspect.signature(make).parameters.values()
    return f"({', '.join(str(part.replace(annotation=part.empty)) for part in parts)})"


def _class_rows(kind: str, source: str) -> Iterator[tuple[str, str]]:
    import nsdyn
    from nsdyn import _named

    bases = {
        "integrators": (nsdyn.AbstractIntegrator, nsdyn.AbstractSmoothMethod),
        "laws": (nsdyn.AbstractLaw,),
    }
    for cls in _named.public(_named.module_of(kind, source)).values():
        if isinstance(cls, type) and issubclass(cls, bases[kind]):
            described = " ".join((vars(cls).get("__doc__") or "").partition("\n\n")[0].split())
            own = "" if described.startswith(f"{cls.__name__}(") else described
            yield f"{source}:{signature(cls)}", own


def first_sentence(cls: type) -> str:
    """The first sentence of the docstring of the module of a class."""
    text = " ".join((sys.modules[cls.__module__].__doc__ or "").partition("\n\n")[0].split())
    return re.split(r"(?<=[\w)\"]{3})[.](?:\s|$)", text)[0].rstrip(".:")
