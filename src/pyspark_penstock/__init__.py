"""Spark finds data sources in installed packages named `pyspark_*`: this one makes `format("penstock")` work."""

from penstock.spark.source import PenstockSource as DefaultSource

__all__ = ["DefaultSource"]
