"""The equations of motion: system, model (system and constraints together), formulations,
projection.

May import: numerics, constraints.
"""
