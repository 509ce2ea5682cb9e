from penstock.log.group_commit import GroupCommit
from penstock.log.log import Log
from penstock.log.producer_state import Origin
from penstock.log.turn import Turn
from penstock.replica.partition import Watcher
from penstock.waiters import OffsetWaiters
from penstock.wire._kernel import Batch

ALL_REPLICAS: int

class Leading:
    log: Log
    is_internal: bool
    is_leader: bool
    leader_epoch: int
    _is_alone: bool
    _committed: OffsetWaiters
    _commits: GroupCommit
    _watchers: set[Watcher]
    def append(self, batch: Batch, acks: int, origin: Origin = Origin.CLIENT, turn: Turn | None = None) -> Batch: ...
    def _advance(self) -> None: ...
