"""Stores: tables of a running application that can be asked for their rows, in milliseconds and without Spark.

A store follows the changelog topic of its table. `follower.py` reads topics into views, one `view.py` for each store: a
file that is made anew if it is lost. `store.py` is what is asked, `answers.py` what comes back, `forms.py` what bytes
mean. `http.py` is the same over HTTP. Imports the client; what runs applications imports it.
"""
