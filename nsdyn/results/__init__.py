"""What a run leaves behind: rows, events, plots, files.

May import: stepping and what it may import.
"""
