"""Numerical tools without mechanics: small dense factorisations, masked saddle points, Newton, null
spaces, rank.

May import: nothing of nsdyn but errors.
"""
