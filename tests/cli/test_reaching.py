"""Which cluster a command is for, profiles, help, and the command as a process of its own."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock.testing import RunningBroker
from tests.cli.running import Command
from tests.support.systems import free_port

COMMANDS = [
    "topic create x", "topic list", "topic describe x", "topic alter x -p 3", "topic delete x -y", "topic offsets x",
    "topic trim x --before end -y", "produce x", "consume x", "consume x --group g", "group list", "group describe g",
    "group lag g", "group reset-offsets g --to-latest", "group delete g -y", "config describe topic x",
    "config set topic x a=b", "config delete topic x a -y", "perf produce x", "perf consume x", "perf latency x",
    "cluster describe", "cluster api-versions", "cluster log-dirs",
]  # fmt: skip


def test_a_broker_that_does_not_run_is_told_at_once() -> None:
    nobody = Command(f"127.0.0.1:{free_port()}")
    begin = time.monotonic()
    for line in COMMANDS:
        assert "cannot reach a broker at" in nobody.fails(*line.split(), code=1), line
    assert time.monotonic() - begin < 10


def test_addresses_are_checked(anywhere: Command) -> None:
    assert "host:port" in anywhere.fails("topic", "list", "--bootstrap", "here:there", code=2)


def test_the_environment_names_the_cluster(
    anywhere: Command, broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", broker.bootstrap)
    assert anywhere("cluster", "describe").code == 0


def test_profiles_name_clusters(anywhere: Command, broker: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no profiles yet" in anywhere("profile", "list").err
    anywhere("profile", "set", "dead", "--bootstrap", f"127.0.0.1:{free_port()}")
    anywhere("profile", "set", "live", "-b", broker.bootstrap, "-c", "client.id=me", "-c", "ssl.key.password=x")
    rows = {row["name"]: row for row in anywhere.json("profile", "list")}
    assert rows["dead"]["current"] is True
    assert rows["live"]["config"] == {"client.id": "me", "ssl.key.password": "***"}
    assert "cannot reach" in anywhere.fails("topic", "list", code=1)
    assert anywhere("topic", "list", "--profile", "live").code == 0
    monkeypatch.setenv("PENSTOCK_PROFILE", "live")
    assert anywhere("topic", "list").code == 0
    monkeypatch.delenv("PENSTOCK_PROFILE")
    anywhere("profile", "use", "live")
    assert anywhere("topic", "list").code == 0
    assert "live" in anywhere("profile", "list").out
    anywhere("profile", "delete", "dead", "--yes")
    assert [row["name"] for row in anywhere.json("profile", "list")] == ["live"]


def test_mistakes_with_profiles_are_one_line(anywhere: Command, tmp_path: Path) -> None:
    assert "there is no profile 'x'" in anywhere.fails("profile", "use", "x", code=2)
    assert "there is no profile 'x'" in anywhere.fails("profile", "delete", "x", code=2)
    assert "there is no profile 'x'" in anywhere.fails("topic", "list", "--profile", "x", code=2)
    assert "--bootstrap HOST:PORT" in anywhere.fails("profile", "set", "x", code=2)
    assert "host:port" in anywhere.fails("profile", "set", "x", "-b", ":", code=2)
    (tmp_path / "penstock").mkdir(exist_ok=True)
    (tmp_path / "penstock" / "profiles.toml").write_text("profiles = 3")
    assert "is no file of profiles" in anywhere.fails("profile", "list", code=2)


def test_help_is_there_for_everything(anywhere: Command) -> None:
    shown = anywhere("--help").out
    for name in ("broker", "topic", "produce", "consume", "group", "config", "log", "perf", "cluster", "profile"):
        assert f" {name} " in shown
    for line in COMMANDS:
        words = [word for word in line.split()[:2] if word not in ("x", "g")]
        help_text = anywhere(*words, "--help").out
        assert "--json" in help_text, line
        assert "--bootstrap" in help_text, line


def test_what_is_no_command_is_told(anywhere: Command) -> None:
    assert "'topics'" in anywhere.fails("topics", code=2)
    assert "'lst'" in anywhere.fails("topic", "lst", code=2)
    assert "TOPIC" in anywhere.fails("topic", "describe", code=2).upper()


def _process(*arguments: str, **options: object) -> subprocess.Popen[bytes]:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = [sys.executable, "-m", "penstock.cli.main", *arguments]
    # The tests may run where Ctrl-C is ignored, as behind nohup; the command shall not inherit that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return subprocess.Popen(command, **(pipes | options))  # type: ignore[call-overload,no-any-return]
    finally:
        signal.signal(signal.SIGINT, before)


def test_records_go_through_pipes(broker: RunningBroker, run: Command, topic: str) -> None:
    run("topic", "create", topic)
    environment = {**os.environ, "PENSTOCK_BOOTSTRAP": broker.bootstrap}
    follower = _process("consume", topic, "--follow", "--from-beginning", "--json", env=environment)
    out, err = _process("produce", topic, env=environment).communicate(b"a\nb\n", 20)
    assert (out, err) == (b"", f"sent 2 records to {topic}\n".encode())
    assert follower.stdout is not None
    assert b'"value": "a"' in follower.stdout.readline()
    assert b'"value": "b"' in follower.stdout.readline()
    follower.send_signal(signal.SIGINT)
    _, err = follower.communicate(timeout=20)
    assert (follower.returncode, err) == (130, b"")


@pytest.mark.parametrize(("answer", "code"), [(b"n\n", 1), (b"y\n", 0)])
def test_what_cannot_be_undone_is_asked_first(broker: RunningBroker, topic: str, answer: bytes, code: int) -> None:
    run = Command(broker.bootstrap)
    run("topic", "create", topic)
    typed, terminal = pty.openpty()
    os.write(typed, answer)
    process = _process("topic", "delete", topic, "-b", broker.bootstrap, stdin=terminal)
    out, err = process.communicate(timeout=20)
    os.close(typed)
    os.close(terminal)
    assert process.returncode == code
    assert f"Delete {topic} and all records in it?".encode() in err
    assert (topic in run("topic", "list").out) is (code == 1)
    assert (b"nothing was done" in err) is (code == 1)
    assert (out == b"") is (code == 1)


def test_help_is_what_a_command_without_arguments_gives(anywhere: Command) -> None:
    for words in ((), ("topic",), ("log",)):
        result = anywhere(*words)
        assert (result.err, "Usage: penstock" in result.out) == ("", True)


def test_a_broken_pipe_is_no_mistake(broker: RunningBroker, filled: str) -> None:
    environment = {**os.environ, "PENSTOCK_BOOTSTRAP": broker.bootstrap}
    reader = _process("consume", filled, "--follow", "--from-beginning", "--grep", "n", env=environment)
    assert reader.stdout is not None
    reader.stdout.readline()
    reader.stdout.close()
    Command(broker.bootstrap)("produce", filled, "--partition", "0", "-k", "last", stdin='{"n": -1}\n')
    assert reader.wait(20) == 0
    assert reader.stderr is not None
    assert reader.stderr.read() == b""


def test_a_broker_starts_without_what_the_commands_need() -> None:
    program = (
        "import sys; from penstock.cli import main; sys.argv = ['penstock', 'broker', '-o', 'nonsense'];\n"
        "try: main.main()\n"
        "except SystemExit: pass\n"
        "assert not {'typer', 'rich', 'confluent_kafka'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, timeout=20)
