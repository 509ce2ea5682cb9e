r"""Add to each record what a table knows of its key, and what a Python function makes of it.

A profile that changes counts for the views that come after it. Views of users without a profile go elsewhere.

penstock topic create clicks clicks-with-country clicks-of-strangers
penstock topic create profiles -c cleanup.policy=compact
echo 'anna={"country": "IT"}' | penstock produce profiles -K =
echo 'anna={"url": "https://shop.example/cart?item=7"}' | penstock produce clicks -K =
penstock stream run docs/examples/streams/enrich.py                 # until Ctrl-C
python docs/examples/streams/enrich.py localhost:9092               # or: take in what is there, and end
penstock consume clicks-with-country --format '%k: %s\n'
"""

import sys
from urllib.parse import urlsplit

from penstock.streams import TEXT, Application, col, json

app = Application("enrich", key=TEXT)
clicks = app.stream("clicks", value=json("url STRING"))
profiles = app.table("profiles", value=json("country STRING"))

paths = clicks.map_values(lambda click: urlsplit(click.url).path, returns="STRING")
known = paths.left_join(profiles, path=col.left, country=col.right.country, step="profile")
at_home, strangers = known.branch(col.country.isNotNull(), default=True)
at_home.to("clicks-with-country", value=json())
strangers.to("clicks-of-strangers", value=json())

if __name__ == "__main__":
    app.catch_up(sys.argv[1])
