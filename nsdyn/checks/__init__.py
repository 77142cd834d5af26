"""`problem.check()` and the verification of a start: shapes, values, guards, switching points.

May import: analysis and what it may import.
"""
