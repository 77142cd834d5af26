"""The results of a run: samples, events, plots, files.

May import: stepping and what it may import.
"""
