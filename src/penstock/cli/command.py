"""How commands are registered: each gets a `Session` and the options that all of them have."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from penstock.cli.mistakes import Mistake, ReaderGone
from penstock.cli.profiles import Profiles
from penstock.cli.session import Session

F = TypeVar("F", bound=Callable[..., Any])

_PANEL = "For every command"


def _complete_profiles(incomplete: str) -> list[str]:
    try:
        return [name for name in Profiles.load().profiles if name.startswith(incomplete)]
    except Mistake:
        return []


Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "-b",
        metavar="HOST:PORT",
        help=r"The broker to ask. \[env: PENSTOCK_BOOTSTRAP; default: localhost:9092]",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
ProfileName = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="NAME",
        help=r"A cluster from your profiles. \[env: PENSTOCK_PROFILE]",
        rich_help_panel=_PANEL,
        show_default=False,
        autocompletion=_complete_profiles,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.", rich_help_panel=_PANEL)]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]

_COMMON: dict[str, Any] = {"bootstrap": (Bootstrap, None), "profile": (ProfileName, None), "as_json": (Json, False)}


def new_group(help: str) -> typer.Typer:
    """A group of commands."""
    return typer.Typer(help=help, no_args_is_help=True, rich_markup_mode="rich", pretty_exceptions_enable=False)


def command(group: typer.Typer, name: str, **options: Any) -> Callable[[F], F]:
    """Register a function as a command. It is called with a Session first, and then with its own options.

    `--bootstrap`, `--profile` and `--json` are added to these.
    """

    def register(function: F) -> F:
        hints = get_type_hints(function, include_extras=True)
        own = [
            parameter.replace(annotation=hints[parameter.name], kind=inspect.Parameter.KEYWORD_ONLY)
            for parameter in list(inspect.signature(function).parameters.values())[1:]
        ]
        common = [
            inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
            for key, (annotation, default) in _COMMON.items()
        ]

        def run(bootstrap: str | None, profile: str | None, as_json: bool, **arguments: Any) -> None:
            try:
                function(Session(bootstrap, profile, as_json), **arguments)
                sys.stdout.flush()
            except BrokenPipeError:
                raise ReaderGone from None

        run.__doc__ = function.__doc__
        run.__name__ = function.__name__
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in (*own, *common)}
        run.__signature__ = inspect.Signature([*own, *common])  # type: ignore[attr-defined]
        group.command(name, no_args_is_help=False, **options)(run)
        return function

    return register


def pairs(given: list[str] | None, option: str) -> dict[str, str]:
    """Options of the form key=value."""
    found = {}
    for text in given or ():
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise Mistake(f"{option} {text}: write it as key=value")
        found[key.strip()] = value
    return found


def complete_topics(incomplete: str) -> list[str]:
    """Topics for the shell to suggest; none if no broker answers."""
    return _complete(lambda admin: admin.list_topics(), incomplete)


def complete_groups(incomplete: str) -> list[str]:
    """Groups for the shell to suggest; none if no broker answers."""
    return _complete(lambda admin: [one.group for one in admin.list_groups()], incomplete)


def _complete(names: Callable[[Any], list[str]], incomplete: str) -> list[str]:
    try:
        with Session(None, None, False).admin() as admin:
            return [name for name in names(admin) if name.startswith(incomplete)]
    except Exception:
        return []  # a shell that completes has no place for errors


Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.", autocompletion=complete_topics)]
Topics = Annotated[
    list[str], typer.Argument(metavar="TOPIC", help="One topic or more.", autocompletion=complete_topics)
]
Group = Annotated[str, typer.Argument(metavar="GROUP", help="The consumer group.", autocompletion=complete_groups)]
Groups = Annotated[
    list[str], typer.Argument(metavar="GROUP", help="One group or more.", autocompletion=complete_groups)
]
