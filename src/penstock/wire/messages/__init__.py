"""One module per API: one dataclass per message for all its versions, which is also its field table."""
