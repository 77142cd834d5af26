"""`problem.check()` and the verification of a start: inputs, values, events of a coarse run. Checks
for one kind of constraint live with that constraint.

May import: native, analysis and what that may import.
"""
