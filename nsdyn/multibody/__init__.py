"""Bodies and joints: chains of rigid bodies, their O(N) dynamics and impulses.

May import: numerics, mechanics.
"""
