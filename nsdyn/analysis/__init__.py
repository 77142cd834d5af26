"""Numbers about a mode change and along a run: transition reports, singular mode changes.

May import: results and what it may import.
"""
