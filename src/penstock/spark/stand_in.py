"""What Spark starts in place of a streaming source's interpreter: see `standby`.

It is run as a file, without any package, and uses the bare modules: to load `socket` and `json` takes longer than all
the rest.
"""

import _socket
import marshal
import os
import sys

standby = _socket.socket(_socket.AF_UNIX)
try:
    standby.connect(os.environ["PENSTOCK_STANDBY"])
except OSError:  # it is not ready, or gone: then the long way
    os.execv(os.environ["PENSTOCK_PYTHON"], [os.environ["PENSTOCK_PYTHON"], *sys.argv[1:]])
standby.sendall(marshal.dumps({"environment": dict(os.environ), "folder": os.getcwd()}))
standby.recv(1)  # nothing comes, but the end
