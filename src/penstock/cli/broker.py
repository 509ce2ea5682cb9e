"""`penstock broker`: run a broker until it is told to stop."""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Sequence

from penstock.config.definition import InvalidConfig
from penstock.config.properties import parse_properties
from penstock.log.directory import DirectoryError

# The default thresholds of the garbage collector are for scripts. A broker makes few cycles, and a full collection
# walks every object it has, while no request is served.
_GC_THRESHOLDS = (50_000, 20, 100)


def main(arguments: Sequence[str]) -> int:
    """Run a broker as the arguments say; returns the exit code."""
    options = _parser().parse_args(arguments)
    try:
        settings = collect_settings(options.listen, options.data_dir, options.config, options.option)
    except InvalidConfig as error:
        print(f"penstock: {error}", file=sys.stderr)
        return 2
    return run(settings)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="penstock broker", description="Run a broker until it is told to stop (Ctrl-C or SIGTERM).", add_help=False
    )
    add = parser.add_argument
    add(
        "--listen",
        metavar="HOST:PORT",
        help="Where to listen, as host:port; several, or NAME://host:port, separated by commas.",
    )
    add("--data-dir", metavar="FOLDER", help="Where to keep the data: a folder, or several separated by commas.")
    add("--config", metavar="FILE", help="A server.properties file.")
    add("-o", "--option", metavar="KEY=VALUE", action="append", default=[], help="Any broker setting. Repeatable.")
    add("-h", "--help", action="help", help="Show this and exit.")
    return parser


def collect_settings(
    listen: str | None, data_dir: str | None, config: str | None, options: Sequence[str]
) -> dict[str, str]:
    """The broker's settings: the file, then the options of the command line, which win. Raises InvalidConfig."""
    settings: dict[str, str] = {}
    if config is not None:
        try:
            with open(config, encoding="utf-8") as file:
                settings |= parse_properties(file.read())
        except OSError as error:
            raise InvalidConfig(f"cannot read {config}: {error.strerror}") from error
    if listen is not None:
        settings["listeners"] = ",".join(part if "://" in part else f"PLAINTEXT://{part}" for part in listen.split(","))
    if data_dir is not None:
        settings["log.dirs"] = data_dir
    for option in options:
        name, equals, value = option.partition("=")
        if not equals:
            raise InvalidConfig(f"-o {option}: write it as key=value")
        settings[name.strip()] = value.strip()
    return settings


def run(settings: dict[str, str]) -> int:
    """Run a broker with these settings; returns the exit code."""
    import uvloop

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)-7s %(message)s", stream=sys.stderr)
    return uvloop.run(_serve(settings))


async def _serve(settings: dict[str, str]) -> int:
    from penstock.broker.broker import Broker

    try:
        broker = Broker(settings)
        await broker.start()
    except (InvalidConfig, DirectoryError) as error:
        print(f"penstock: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"penstock: cannot start: {error}", file=sys.stderr)
        return 1
    gc.freeze()  # what it has now, it keeps
    gc.set_threshold(*_GC_THRESHOLDS)
    gc.enable()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    for address in broker.addresses:
        print(f"penstock broker {broker.broker_id} ready on {address}", flush=True)
    stopped = asyncio.ensure_future(stop.wait())
    failed = asyncio.ensure_future(broker.failed.wait())
    await asyncio.wait((stopped, failed), return_when=asyncio.FIRST_COMPLETED)
    await broker.stop()
    return 1 if broker.failed.is_set() else 0
