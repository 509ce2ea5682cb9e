"""`penstock log`: the files in a data folder, without a broker."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from penstock.cli.command import Json, Yes, new_group
from penstock.cli.data_folder import DataFolder, is_in_use, repair_partition
from penstock.cli.dump import dump_as_json, dump_as_text, files_at
from penstock.cli.mistakes import FAILURE, Failure
from penstock.cli.output import Output
from penstock.cli.session import Session
from penstock.log.inspection import PartitionCheck, PartitionReport
from penstock.log.storage import Storage

group = new_group("Look into the files of a data folder, check them, repair them. No broker is needed.")

Folder = Annotated[str, typer.Argument(metavar="FOLDER", help="A data folder, or the folder of one partition in it.")]


@group.command("dump")
def dump(
    path: Annotated[str, typer.Argument(metavar="PATH", help="A segment file, an index, or a partition's folder.")],
    deep: Annotated[bool, typer.Option("--deep", "-d", help="Also the records in each batch.")] = False,
    as_json: Json = False,
) -> None:
    """Show what is in log files and indexes: batches, records, entries."""
    problems = dump_as_json(files_at(path), deep) if as_json else dump_as_text(files_at(path), deep)
    if problems:
        raise typer.Exit(FAILURE)


@group.command("verify")
def verify(folder: Folder, as_json: Json = False) -> None:
    """Check checksums, offsets and indexes, and tell each problem with its place. Ends with 1 if there is any."""
    out = Output(as_json)
    found = DataFolder.at(folder)
    is_live = is_in_use(found.path)
    if is_live:
        out.remark("A broker uses this folder now: what it is writing may look like a problem.")
    reports = [PartitionCheck(Storage(), path).run() for path in found.partitions]
    problems = [
        {"file": os.path.relpath(one.path, found.path), "position": one.position, "problem": one.text}
        for report in reports
        for one in report.problems
    ]
    facts = {
        "partitions": len(reports),
        "segments": sum(len(report.segments) for report in reports),
        "batches": sum(segment.batches for report in reports for segment in report.segments),
        "records": sum(segment.records for report in reports for segment in report.segments),
        "bytes": sum(segment.size for report in reports for segment in report.segments),
    }
    if as_json:
        out.json({**facts, "in_use": is_live, "problems": problems})
    else:
        if problems:
            out.rows(problems, columns=("file", "position", "problem"))
            out.heading("")
        counted = ", ".join(f"{value} {name}" for name, value in facts.items())
        out.heading(f"{len(problems) or 'no'} problem{'' if len(problems) == 1 else 's'} in {counted}")
    if problems:
        raise typer.Exit(FAILURE)


@group.command("repair")
def repair(folder: Folder, yes: Yes = False, as_json: Json = False) -> None:
    """Cut torn ends of logs off and rebuild indexes. The broker must not run.

    What stands behind the first batch that is damaged is lost: look at 'penstock log verify' first.
    """
    out = Output(as_json)
    found = DataFolder.at(folder)
    if is_in_use(found.path):
        raise Failure(f"a broker uses {found.path} now; stop it first")
    reports = [PartitionCheck(Storage(), path).run() for path in found.partitions]
    damaged = [report for report in reports if report.problems]
    if damaged:
        lost = sum(report.lost_bytes for report in damaged)
        question = f"Rebuild the indexes of {len(damaged)} partition(s), and cut off {lost} bytes?"
        Session("localhost", None, as_json).confirm(question, yes)
    rows = []
    if damaged:
        with found.opened() as directory:
            for report in damaged:
                repair_partition(directory, report.path)
                rows.append(_repaired(found, report, PartitionCheck(Storage(), report.path).run()))
    if as_json:
        out.json({"checked": len(reports), "repaired": rows})
        return
    out.rows(rows, columns=("partition", "problems", "cut_bytes", "end_offset"), empty="There is nothing to repair.")
    left = sum(row["problems_left"] for row in rows)
    if left:
        raise Failure(f"{left} problem(s) are left; 'penstock log verify {folder}' shows them")


def _repaired(folder: DataFolder, before: PartitionReport, after: PartitionReport) -> dict[str, Any]:
    return {
        "partition": os.path.relpath(before.path, folder.path),
        "problems": len(before.problems),
        "cut_bytes": sum(one.size for one in before.segments) - sum(one.size for one in after.segments),
        "end_offset": after.segments[-1].next_offset if after.segments else None,
        "problems_left": len(after.problems),
    }
