"""Code that studies share: archive, style of figures, tables, drawings, the benchmark."""
