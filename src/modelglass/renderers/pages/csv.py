"""A table as CSV: exact figures, and texts of which no spreadsheet makes formulas."""

from __future__ import annotations

import csv
import io

from modelglass.page import Table, value_of
from modelglass.renderers._escape import csv_cell


def render(table: Table) -> str:
    """A line of names, and a line for each row."""
    out = io.StringIO()
    # Each cell between quotes: some programs take semicolons for the ends of cells.
    writer = csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writerow(column.name for column in table.columns)
    for row in table.rows:
        values = map(value_of, row)
        writer.writerow(csv_cell(value) if isinstance(value, str) else value for value in values)
    return out.getvalue()
