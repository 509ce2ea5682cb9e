from collections.abc import Sequence

from penstock.log.storage import FileSlice

class Sender:
    ready: list[bytes | list[bytes | FileSlice]]
    fd: int
    is_engaged: bool
    def send_ready(self) -> None: ...

def flush(senders: Sequence[Sender]) -> None: ...
