"""The two systems that the same tests run against: Penstock, and real Apache Kafka as the oracle."""

from __future__ import annotations

import base64
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from penstock.client.connection import Connection
from penstock.wire.messages.api_versions import ApiVersionsRequest
from tests.support.maven import classpath

NODE_ID = 1
_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 30.0

# Tests of groups should not wait for patience that only matters in production.
_GROUP_OPTIONS = {
    "group.initial.rebalance.delay.ms": "150",  # kafka-python may join before it knows the topic, and then hangs
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "200",
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass
class System:
    """A running broker. `data` is its data directory; options are settings that both systems know."""

    name: str
    data: Path
    options: dict[str, str] = field(default_factory=dict)
    port: int = 0
    _process: subprocess.Popen[bytes] | None = None

    @property
    def is_penstock(self) -> bool:
        return self.name == "penstock"

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> str:
        return (self.data.parent / f"{self.data.name}.log").read_text(errors="replace")

    def connect(self, **options: object) -> Connection:
        return Connection("127.0.0.1", self.port, **options)  # type: ignore[arg-type]

    def start(self) -> System:
        self.port = self.port or free_port()
        with open(self.data.parent / f"{self.data.name}.log", "ab") as log:
            self._process = subprocess.Popen(self._command(), stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self._wait_until_ready()
        return self

    def _command(self) -> list[str]:
        if not self.is_penstock:
            return _kafka_command(self)
        command = [sys.executable, "-m", "penstock.cli.main", "broker", "--listen", self.bootstrap]
        command += ["--data-dir", str(self.data), "-o", f"node.id={NODE_ID}"]
        for key, value in (_GROUP_OPTIONS | self.options).items():
            command += ["-o", f"{key}={value}"]
        return command

    def _wait_until_ready(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + _START_TIMEOUT_S
        while True:
            if self._process.poll() is not None:
                raise RuntimeError(f"{self.name} ended with code {self._process.returncode}:\n{self.log[-4000:]}")
            try:
                with self.connect(timeout_s=5.0) as connection:
                    connection.call(ApiVersionsRequest(client_software_name="test", client_software_version="1"), 3)
                return
            except OSError:
                if time.monotonic() > deadline:
                    self.kill()
                    raise RuntimeError(f"{self.name} does not answer:\n{self.log[-4000:]}") from None
                time.sleep(0.005)

    def stop(self) -> int:
        """Ask it to end, and wait until it has; returns the exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def kill(self) -> None:
        """End it without any warning."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def restart(self) -> System:
        self.stop()
        return self.start()

    def cpu_seconds(self) -> float:
        """User and system time that the broker has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_bytes(self) -> int:
        """Resident memory."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise RuntimeError("the broker has ended")


def penstock(data: Path, **options: str) -> System:
    return System("penstock", data, _dotted(options))


def kafka(data: Path, **options: str) -> System:
    return System("kafka", data, _dotted(options))


def named(name: str, data: Path, **options: str) -> System:
    """Either of them, by its name."""
    return System(name, data, _dotted(options))


def _dotted(options: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "."): value for name, value in options.items()}


def _kafka_command(system: System) -> list[str]:
    controller_port = free_port()
    properties = {
        "process.roles": "broker,controller",
        "node.id": str(NODE_ID),
        "controller.quorum.voters": f"{NODE_ID}@127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{system.port},CONTROLLER://127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(system.data),
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        **_GROUP_OPTIONS,
        **system.options,
    }
    file = system.data.parent / f"{system.data.name}.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    java = [shutil.which("java") or "java", "-Xmx1g", "-cp", classpath()]
    if not (system.data / "meta.properties").exists():
        cluster_id = base64.urlsafe_b64encode(os.urandom(16)).rstrip(b"=").decode().replace("-", "a")
        formatting = [*java, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(file)]
        subprocess.run(formatting, check=True, capture_output=True)
    return [*java, "kafka.Kafka", str(file)]
