"""What happens inside one step: the integrator contract, guards, event location, mode changes, the
event log.

May import: numerics, constraints, laws, mechanics, and problem.
"""
