"""Conformance suites for problems, integrators and laws, nsdyn's own and yours: call them in tests.

testing.check_problem(problem), check_integrator(integrator), check_law(law) return a report of what
was verified, or raise a `ConformanceError`, which is an AssertionError, that says what failed.

May import: the core and integrators.
"""

from nsdyn.testing.findings import ConformanceError, Findings
from nsdyn.testing.integrator import check_integrator
from nsdyn.testing.law import check_law
from nsdyn.testing.problem import check_problem
from nsdyn.testing.run import check_run, refusal
from nsdyn.testing.travel import check_travels

__all__ = [
    "ConformanceError",
    "Findings",
    "check_integrator",
    "check_law",
    "check_problem",
    "check_run",
    "check_travels",
    "refusal",
]
