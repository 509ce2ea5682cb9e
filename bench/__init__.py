"""Penstock beside real Apache Kafka, on the same machine, in the same run.

`make bench` runs all of it and writes RESULTS.md; `python -m bench NAME...` runs some of it and prints. Both systems
run all the time, one of them is loaded at a time, the order alternates from round to round, and what counts is the
median of the rounds' ratios.
"""
