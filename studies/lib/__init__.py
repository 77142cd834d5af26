"""What studies share: archive, style of figures, tables, drawings, benchmarks. No study lives
here."""
