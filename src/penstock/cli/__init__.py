"""The command line. `main` is the entry, `app` the list of commands; each group of commands has a module of its own.

What they share: `command` registers them, `session` reaches the cluster, `output` prints, `mistakes` turns what goes
wrong into one line. A broker starts without any of this: see `main`.
"""
