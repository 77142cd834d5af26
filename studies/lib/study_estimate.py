"""How long a study will take before anything of it was run: a guess from the sizes of its
mechanisms, right within a factor of three or so.

A pair costs a program and the steps of its cells. With s = (n + m)^2 for n velocities and m rows, and
k operations of the mass matrix, CPU seconds are about

    2 + 0.009 s + 0.004 k + 2e-5 (1 + s/40) steps                                                (1)

as measured with small mechanisms (2.6 s), `andrews` (7 s) and `bricard` (two minutes). A run
that shows its time is made again, so its steps count several times.
"""

import jax
import jax.numpy as jnp
from jax.extend import core

from nsdyn.driver.backend import LANES
from nsdyn.problem import Problem
from nsdyn.studies.lib import study_cells
from nsdyn.studies.lib.study_cells import Cell, Pair
from nsdyn.studies.lib.study_file import Plan

PROGRAM, OF_SIZE, OF_OPERATION = 2.0, 0.009, 0.004  # CPU seconds of a program
STEP, DOUBLE_SIZE = 2e-5, 40.0  # CPU seconds of a small step; the size at which it takes twice that


def seconds(plan: Plan, todo: dict[Pair, list[Cell]]) -> float:
    """CPU seconds (1) of all that is to do."""
    sizes = {name: _size(plan.problems[name]) for name in dict.fromkeys(x.problem for x in todo)}
    return sum(_of_pair(plan, cells, *sizes[pair.problem]) for pair, cells in todo.items())


def _of_pair(plan: Plan, cells: list[Cell], size: float, operations: int) -> float:
    steps = sum(_steps(plan, cell) for cell in cells)
    program = PROGRAM + OF_SIZE * size + OF_OPERATION * operations
    found = program + STEP * (1 + size / DOUBLE_SIZE) * steps
    return found if plan.patience is None else min(found, plan.patience)


def _steps(plan: Plan, cell: Cell) -> float:
    """Steps of all runs of a cell; of a reference, of two runs."""
    problem = plan.problems[cell.pair.problem]
    count = (problem.t_end - problem.t0) / cell.words["step"]
    if cell.is_reference:
        return 1.5 * LANES * count
    return count * max(LANES, plan.phases) * (1 + study_cells.REPEATS * plan.wants_times)


def _size(problem: Problem) -> tuple[float, int]:
    """The square of the number of unknowns of a step, and the operations of the mass matrix."""
    q, p = jnp.asarray(problem.q0), problem.params
    traced = jax.make_jaxpr(lambda q: problem.system.mass(q, p))(q)
    return float(len(problem.v0) + problem.model().m) ** 2, _operations(traced.jaxpr)


def _operations(jaxpr: core.Jaxpr) -> int:
    """Equations, with those of the functions that are called."""
    inner = core.jaxprs_in_params
    return sum(1 + sum(map(_operations, inner(x.params))) for x in jaxpr.eqns)
