"""What holds in which mode, and what changes the mode: one kind of constraint per file.

May import: numerics.
"""
