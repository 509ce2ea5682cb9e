"""`penstock stream`: Streams applications, from running them to forgetting them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote, urlencode

import typer

from penstock.cli import programs
from penstock.cli.command import Yes, command, new_group
from penstock.cli.mistakes import Failure, Mistake
from penstock.cli.session import Session
from penstock.cli.times import parse_time_ms, time_text
from penstock.cli.watching import watch
from penstock.streams import shape as shapes
from penstock.streams.pieces import cut
from penstock.streams.presence import FILE, Running, running_in
from penstock.streams.resetting import Leftovers, leftovers
from penstock.streams.resetting import reset as reset_application
from penstock.streams.shape import Shape, shape_of
from penstock.streams.upgrading import told

group = new_group("Run Streams applications, look at them, ask their tables, stop and reset them.")

_STATE_DIR = "penstock-streams"
_SHELTERED = "PENSTOCK_SHELTERED"
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_POLL_S = 0.1
_ANSWER_S = 30.0

Program = Annotated[
    str, typer.Argument(metavar="PROGRAM.py[:NAME]", help="A file with an Application in it; NAME if it has several.")
]
Name = Annotated[str, typer.Argument(metavar="APPLICATION", help="The application's id, or its program.")]
StateDir = Annotated[
    str | None,
    typer.Option("--state-dir", metavar="DIR", help=f"Where applications keep what they keep. Default: {_STATE_DIR}"),
]


@dataclass(frozen=True)
class Known:
    """An application that was named: its id, its folder, and the shape that it has kept there or has in its program."""

    id: str
    folder: Path
    shape: Shape

    @property
    def running(self) -> Running | None:
        return running_in(self.folder)


@command(group, "run")
def run(
    session: Session,
    program: Program,
    http: Annotated[
        str, typer.Option("--http", metavar="HOST:PORT", help="Where stores answer. Port 0 takes a free one.")
    ] = "127.0.0.1:0",
    master: Annotated[
        str, typer.Option("--master", metavar="URL", help="Spark's master, as in local[4] or spark://host:7077.")
    ] = "local[*]",
    trigger: Annotated[
        str | None, typer.Option("--trigger", metavar="TIME", help="A batch every so often, as in '5 seconds'.")
    ] = None,
    interval: Annotated[
        float, typer.Option("--interval", min=0.1, help="Seconds between lines, where there is no terminal.")
    ] = 5.0,
) -> None:
    """Run the application in a file until it is told to stop (Ctrl-C or SIGTERM). It then ends in good order."""
    if os.environ.get(_SHELTERED) != str(os.getppid()):
        raise typer.Exit(_sheltered())
    is_enough = threading.Event()
    _stop_with_signals(is_enough)
    application = programs.load(program)
    session.check_reachable()
    from penstock.spark import session as spark_session

    spark = spark_session(master, app=application.settings.application_id, log_level="OFF")
    _stop_with_signals(is_enough)  # Spark has a handler of its own, that cancels the batch under way
    every = {"processingTime": trigger} if trigger is not None else None
    with application.run(session.bootstrap, spark=spark, http=http, trigger=every) as running:
        stores = f"; stores answer at http://{running.http}/stores" if application.topology.stores else ""
        kept = shapes.load(application.settings.folder)
        for one, left in kept.gone.items() if kept is not None else ():
            session.out.remark(told(one, left, running.name))
        session.out.remark(f"{running.name} runs on {session.bootstrap}; queries: {len(running.queries)}{stores}")
        watch(running, is_enough, session.out, interval)
        session.out.remark(f"stopping {running.name}")
    spark.stop()
    session.out.remark(f"{running.name} has stopped; it goes on from here when it is run again")


@command(group, "list")
def list_applications(session: Session, state_dir: StateDir = None) -> None:
    """List the applications that run or have run on this machine."""
    root = Path(state_dir or _STATE_DIR)
    folders = sorted(one.parent for name in (FILE, shapes.FILE) for one in root.glob(f"*/{name}"))
    rows = [_listed(folder) for folder in dict.fromkeys(folders)]
    columns = ("application", "state", "pid", "since", "bootstrap", "http")
    session.out.rows(
        rows, columns=columns, empty=f"There are no applications in {root}; --state-dir names another place."
    )


@command(group, "describe")
def describe(session: Session, program: Program) -> None:
    """Show the queries of an application, and the steps in each. Needs neither a broker nor Java."""
    application = programs.load(program)
    if session.out.as_json:
        shape = asdict(shape_of(cut(application.topology)))
        session.out.json({name: shape[name] for name in ("application", "queries", "stores")})
    else:
        print(application.describe(), end="")


@command(group, "draw")
def draw(
    session: Session,
    program: Program,
    form: Annotated[str, typer.Option("--form", help="svg or mermaid.")] = "svg",
    output: Annotated[str | None, typer.Option("--output", "-o", metavar="FILE", help="Write it to a file.")] = None,
) -> None:
    """Draw an application. Needs neither a broker nor Java."""
    picture = programs.load(program).draw(form)
    if output is None:
        print(picture, end="")
    else:
        Path(output).write_text(picture, encoding="utf-8")
        session.out.done(f"wrote {output}", {"file": output})


@command(group, "query")
def query(
    session: Session,
    name: Name,
    store: Annotated[str | None, typer.Argument(metavar="[STORE]", help="The store. Without it, list all.")] = None,
    key: Annotated[str | None, typer.Argument(metavar="[KEY]", help="The key of a row, or of windows.")] = None,
    first: Annotated[str | None, typer.Option("--from", metavar="KEY", help="Keys from this one on.")] = None,
    last: Annotated[str | None, typer.Option("--to", metavar="KEY", help="Keys up to this one.")] = None,
    start: Annotated[
        str | None, typer.Option("--start", metavar="TIME", help="Windows that begin from then on.")
    ] = None,
    end: Annotated[str | None, typer.Option("--end", metavar="TIME", help="Windows that begin up to then.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many rows.")] = 100,
    state_dir: StateDir = None,
) -> None:
    """Ask the tables of a running application for their rows."""
    running = _running(name, state_dir)
    if running.http is None:
        raise Failure(f"{running.application} runs without HTTP, so it cannot be asked from here: run it with http=")
    if store is None:
        _list_stores(session, running.http)
        return
    if key is not None and (first is not None or last is not None):
        raise Mistake("ask for one KEY, or for --from and --to, not both")
    times = {name: str(parse_time_ms(text)) for name, text in (("start", start), ("end", end)) if text is not None}
    keys = {name: text for name, text in (("from", first), ("to", last)) if text is not None}
    path = f"/stores/{quote(store, safe='')}" + ("" if key is None else f"/{quote(key, safe='')}")
    answer = _asked(running.http, f"{path}?{urlencode({**keys, **times, 'limit': str(limit)})}")
    if session.out.as_json:
        session.out.json(answer)
        return
    rows = [_flat(row) for row in answer["rows"]]
    columns = list(dict.fromkeys(column for row in rows for column in row))
    session.out.rows(rows, columns=columns, empty="There is no such row." if key is not None else "There are no rows.")
    standing = answer["standing"]
    session.out.remark(
        f"{'' if answer['is_complete'] else f'the first {len(rows):,} rows; there are more: say --limit or --from. '}"
        f"{standing['records_behind']:,} records behind as of {time_text(standing['as_of']) or 'never'}"
    )


@command(group, "stop")
def stop(
    session: Session,
    name: Name,
    state_dir: StateDir = None,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds to wait until it has ended.")] = 60.0,
) -> None:
    """Stop a running application, and wait until it has ended."""
    running = _running(name, state_dir)
    folder = _known(name, state_dir).folder
    os.kill(running.pid, signal.SIGTERM)
    deadline = time.monotonic() + timeout
    while running_in(folder) is not None:
        if time.monotonic() > deadline:
            raise Failure(
                f"{running.application} (process {running.pid}) has not ended after {timeout:g} s; wait longer"
            )
        time.sleep(_POLL_S)
    session.out.done(f"{running.application} has stopped", {"application": running.application, "pid": running.pid})


@command(group, "reset")
def reset(
    session: Session,
    name: Name,
    state_dir: StateDir = None,
    gone: Annotated[bool, typer.Option("--gone", help="Only what steps left that the program no longer has.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be deleted.")] = False,
    yes: Yes = False,
) -> None:
    """Have an application begin anew: delete its checkpoints, stores, internal topics and groups.

    The topics that it reads and those that it writes for others are left alone. It will write there again what it
    makes of all its input.
    """
    known = _known(name, state_dir)
    if known.running is not None:
        raise Failure(f"{known.id} is running (process {known.running.pid}); 'penstock stream stop {known.id}' ends it")
    if known.shape.bootstrap not in ("", session.bootstrap):
        session.out.remark(f"{known.id} last ran on {known.shape.bootstrap}; this looks at {session.bootstrap}.")
    with session.admin() as admin:
        found = leftovers(admin, known.shape, known.folder, only_gone=gone)
        is_done = not dry_run and not found.is_nothing
        if not session.out.as_json:
            _show(session, found)
        if is_done:
            session.confirm(f"Delete all this, so that {known.id} {'is tidy' if gone else 'begins anew'}?", yes)
            reset_application(admin, found, known.folder)
    if session.out.as_json:
        session.out.json({"application": known.id, "executed": is_done, **_facts(found)})
    elif is_done:
        session.out.heading(f"deleted; {known.id} {'is tidy' if gone else 'begins anew when it is run'}")
    if not gone and not found.is_nothing:
        session.out.remark(
            f"Topics it writes for others are left as they are: {', '.join(_outputs(known.shape)) or 'none'}."
        )
    if dry_run and not found.is_nothing:
        session.out.remark("Nothing was deleted: leave out --dry-run to do this.")


# ---- which application ----


def _known(name: str, state_dir: str | None) -> Known:
    """The application of that id in the folder for all, or the one in a program."""
    if programs.is_program(name):
        application = programs.load(name)
        settings = application.settings
        folder = Path(state_dir, settings.application_id) if state_dir is not None else settings.folder
        kept = shapes.load(folder)
        return Known(settings.application_id, folder, kept or shape_of(cut(application.topology)))
    folder = Path(state_dir or _STATE_DIR, name)
    shape = shapes.load(folder)
    if shape is None and running_in(folder) is None:
        raise Failure(
            f"there is no application {name!r} in {folder.parent}; 'penstock stream list' shows those that are; "
            "--state-dir names another place"
        )
    return Known(name, folder, shape or Shape(name, "", {}))


def _running(name: str, state_dir: str | None) -> Running:
    known = _known(name, state_dir)
    running = known.running
    if running is None:
        raise Failure(f"{known.id} is not running; 'penstock stream run PROGRAM.py' runs it")
    return running


def _listed(folder: Path) -> dict[str, Any]:
    running = running_in(folder)
    if running is not None:
        return {**asdict(running), "state": "running", "since": time_text(running.started_at)}
    state = "crashed" if (folder / FILE).exists() else "stopped"
    return {"application": folder.name, "state": state}


# ---- running ----


def _sheltered() -> int:
    """Run this command in a session of its own, where Ctrl-C does not reach: it would end Spark's tasks midway.

    Signals are passed on; the application then ends in good order.
    """
    command = [sys.executable, "-m", "penstock.cli.main", *sys.argv[1:]]
    child = subprocess.Popen(command, start_new_session=True, env={**os.environ, _SHELTERED: str(os.getpid())})
    for one in _SIGNALS:
        signal.signal(one, lambda number, _: child.send_signal(signal.SIGTERM if number == signal.SIGHUP else number))
    return child.wait()


def _stop_with_signals(is_enough: threading.Event) -> None:
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, lambda *_: is_enough.set())


# ---- asking ----


def _asked(address: str, path: str) -> Any:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=_ANSWER_S) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        raise Failure(json.load(error)["error"]) from None
    except OSError as error:
        raise Failure(f"no answer from http://{address}: {error}") from None


def _list_stores(session: Session, address: str) -> None:
    rows = [{**one, "records_behind": one["standing"]["records_behind"]} for one in _asked(address, "/stores")]
    columns = ("name", "rows", "is_windowed", "records_behind", "topic")
    session.out.rows(rows, columns=columns, empty="It has no stores: name one with table.store(name).")


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """A row for a table: the parts of a windowed key and the fields of a value in columns of their own."""
    key, value = row["key"], row["value"]
    flat: dict[str, Any] = {"key": key}
    if isinstance(key, dict) and key.keys() == {"key", "start", "end"}:
        flat = {"key": key["key"], **{name: time_text(key[name]) for name in ("start", "end")}}
    fields = value if isinstance(value, dict) else {"value": value}
    return {**flat, **{name if name not in flat else f"value.{name}": one for name, one in fields.items()}}


# ---- resetting ----


def _show(session: Session, found: Leftovers) -> None:
    rows = [{"what": what[:-1], "name": name} for what, names in _facts(found).items() for name in names]
    session.out.rows(rows, columns=("what", "name"), empty="There is nothing to delete.")


def _facts(found: Leftovers) -> dict[str, list[str]]:
    return {"folders": [str(one) for one in found.folders], "topics": list(found.topics), "groups": list(found.groups)}


def _outputs(shape: Shape) -> list[str]:
    every = (topic for one in shape.queries.values() for topic in one.outputs if topic not in one.internal)
    return list(dict.fromkeys(every))
