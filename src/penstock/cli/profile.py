"""`penstock profile`: clusters by name."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.command import Json, Yes, new_group, pairs
from penstock.cli.mistakes import Mistake
from penstock.cli.output import Output
from penstock.cli.profiles import Profile, Profiles
from penstock.cli.session import addresses

group = new_group("Give clusters names, and choose the one that commands are for.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The profile's name.")]


@group.command("list")
def list_profiles(as_json: Json = False) -> None:
    """List the profiles; the one in use has a star."""
    profiles = Profiles.load()
    rows = [
        {
            "name": name,
            "bootstrap": one.bootstrap,
            "current": name == profiles.current,
            "config": {key: "***" if _is_secret(key) else value for key, value in one.config.items()},
        }
        for name, one in sorted(profiles.profiles.items())
    ]
    if not as_json:
        rows = [{**row, "current": "*" if row["current"] else ""} for row in rows]
    Output(as_json).rows(
        rows,
        columns=("current", "name", "bootstrap", "config"),
        empty="There are no profiles yet; make one with 'penstock profile set NAME --bootstrap HOST:PORT'.",
    )


@group.command("set")
def set_profile(
    name: Name,
    bootstrap: Annotated[
        str | None, typer.Option("--bootstrap", "-b", metavar="HOST:PORT", help="Its brokers.")
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", "-c", metavar="KEY=VALUE", help="A setting of librdkafka. Repeatable."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a profile, or change one. The first one is used from then on."""
    profiles = Profiles.load()
    before = profiles.profiles.get(name)
    if bootstrap is None and before is None:
        raise Mistake(f"profile {name!r} is new: say where its brokers are with --bootstrap HOST:PORT")
    if bootstrap is not None:
        addresses(bootstrap)
    settings = {**(before.config if before else {}), **pairs(config, "--config")}
    made = Profile(bootstrap or (before.bootstrap if before else ""), settings)
    profiles.profiles[name] = made
    profiles.current = profiles.current or name
    profiles.save()
    facts = {"name": name, "bootstrap": made.bootstrap, "current": profiles.current == name}
    Output(as_json).done(f"profile {name} is {made.bootstrap}", facts)


@group.command("use")
def use_profile(name: Name, as_json: Json = False) -> None:
    """Have all commands be for this cluster, unless they say otherwise."""
    profiles = Profiles.load()
    chosen = profiles.get(name)
    profiles.current = name
    profiles.save()
    facts = {"name": name, "bootstrap": chosen.bootstrap, "current": True}
    Output(as_json).done(f"using {name} ({chosen.bootstrap})", facts)


@group.command("delete")
def delete_profile(name: Name, yes: Yes = False, as_json: Json = False) -> None:
    """Forget a profile."""
    from penstock.cli.session import Session

    profiles = Profiles.load()
    profiles.get(name)
    Session("localhost", None, as_json).confirm(f"Forget the profile {name}?", yes)
    del profiles.profiles[name]
    profiles.current = None if profiles.current == name else profiles.current
    profiles.save()
    Output(as_json).done(f"forgot {name}", {"deleted": name})


def _is_secret(key: str) -> bool:
    return any(word in key for word in ("password", "secret", "key.pem"))
