"""What the demonstration does, as a streams application: page views meet their users' profiles, and are counted.

penstock stream describe demo/application.py      shows it, without running it
"""

from __future__ import annotations

import sys

from demo.activity import PROFILES, VIEWS
from penstock.streams import TEXT, Application, col, fn, json, tumbling

NAME = "activity"
SEEN = "views-by-country"  # page views with the country of their user
COUNTS = "views-per-minute"


def application(state_dir: str = "state") -> Application:
    """Views with their countries go into one topic; how many a country had in a minute, so far, into another."""
    app = Application(NAME, key=TEXT, state_dir=state_dir)
    profiles = app.table(PROFILES, value=json("country STRING"))
    seen = app.stream(VIEWS, value=json("page STRING")).join(
        profiles, page=col.left.page, country=col.right.country, step="countries"
    )
    seen.to(SEEN, value=json())
    counts = (
        seen.group_by(col.country, key=TEXT).window(tumbling("1 minute", grace="5 minutes")).count(step="per-minute")
    )
    counts.to_stream().map(
        key=fn.concat_ws(" ", fn.date_format(col.key.start, "HH:mm"), col.key.key),
        value=fn.struct(
            fn.unix_millis(col.key.start).alias("minute"), col.key.key.alias("country"), col.value.alias("count")
        ),
    ).to(COUNTS, key=TEXT, value=json())
    return app


if __name__ == "__main__":
    sys.stdout.write(application().describe() + "\n")
