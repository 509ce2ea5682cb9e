"""Topologies as Spark queries.

Start at `running.py`: it makes internal topics, starts a query for each piece, and looks after them. `queries.py` makes
a query of a piece. What single steps do to frames is in `steps.py`, `aggregating.py`, `joining.py`, `enriching.py`; and
on the state of `keyed.py` in `folding.py` (with `spans.py` for windows) and `processing.py`; `lateness.py` is for what
comes too late. `columns.py` is for expressions, `forms.py` for bytes, and `records.py` for what all frames have in
common. `storing.py` says what stores follow, `cleaning.py` deletes what internal topics need not keep. The only part of
streams that imports Spark.
"""
