"""What happens over all steps: arguments, grid, loop, derivatives, and the three ways to run a
problem.

May import: checks and what it may import, and native.
"""
