"""Topologies as Spark queries.

Start at `running.py`: it makes internal topics, starts a query for each piece, and looks after them. `queries.py` makes
a query of a piece; what single steps do to frames is in `steps.py`, `aggregating.py`, `folding.py` and `joining.py`,
with `columns.py` for expressions, `forms.py` for bytes, and `records.py` for what all frames have in common.
`storing.py` says what stores follow, `cleaning.py` deletes records that all have read.
The only part of streams that imports Spark.
"""
