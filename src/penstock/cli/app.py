"""The commands of `penstock`, put together."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import typer

from penstock.cli import broker, cluster, config, consume, group, log, perf, produce, profile, stream, topic, txn
from penstock.cli.mistakes import report

_ABOUT = """An event-streaming platform that speaks Kafka's protocol and feeds Spark.

Start a broker with [bold]penstock broker[/bold], then try:

  penstock topic create orders
  echo hello | penstock produce orders
  penstock consume orders

Every command has --help, and --json for programs. Those that talk to a cluster find it with --bootstrap or --profile.
"""

_RECORDS, _CLUSTER, _MACHINE = "Records", "A cluster", "This machine"

app = typer.Typer(
    name="penstock",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


@app.callback(help=_ABOUT)
def penstock() -> None:
    """See `_ABOUT`."""


produce.register(app, panel=_RECORDS)
consume.register(app, panel=_RECORDS)
app.add_typer(perf.group, name="perf", rich_help_panel=_RECORDS)
app.add_typer(topic.group, name="topic", rich_help_panel=_CLUSTER)
app.add_typer(group.group, name="group", rich_help_panel=_CLUSTER)
app.add_typer(txn.group, name="txn", rich_help_panel=_CLUSTER)
app.add_typer(config.group, name="config", rich_help_panel=_CLUSTER)
app.add_typer(cluster.group, name="cluster", rich_help_panel=_CLUSTER)


@app.command(
    "broker",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    help="Run a broker until it is told to stop (Ctrl-C or SIGTERM).",
    rich_help_panel=_MACHINE,
)
def run_broker(context: typer.Context) -> None:
    """See `penstock.cli.broker`, which has its options."""
    raise typer.Exit(broker.main(context.args))


app.add_typer(stream.group, name="stream", rich_help_panel=_MACHINE)
app.add_typer(log.group, name="log", rich_help_panel=_MACHINE)
app.add_typer(profile.group, name="profile", rich_help_panel=_MACHINE)


def run(arguments: Sequence[str]) -> int:
    """Run a command; returns the exit code. What goes wrong is told in one line."""
    logging.getLogger("penstock").addHandler(logging.NullHandler())  # what matters of it is raised as well
    try:
        code = app(args=list(arguments), prog_name="penstock", standalone_mode=False)
    except BaseException as error:
        return report(error)
    return code if isinstance(code, int) else 0
