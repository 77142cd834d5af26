"""What studies write beside their figures."""

TABLES = {f"table.{kind}" for kind in ("txt", "md", "tex", "csv")}
