"""One module per API, named by its key. Each translates between the wire and the domain, and does nothing else."""
