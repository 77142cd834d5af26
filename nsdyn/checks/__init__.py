"""`problem.check()` and the verification of a start: inputs, values, events of a coarse run. What
is particular to a kind of constraint lives with the constraint.

May import: analysis and what it may import.
"""
