"""Child processes: every way a driver is known to misbehave, with a small script in its place."""

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import psutil
import pytest
from patience import MINUTES

from harness import process
from harness.process import Child, Closed, ProtocolError, Timeout

OPEN = "import os, sys, time, signal, subprocess\nfrom harness.channel import Channel\nchannel = Channel()\n"


def start(body: str, memory_limit: int | None = None, **changes: str | None) -> Child:
    """A child that opens its channel and runs `body`."""
    script = OPEN + textwrap.dedent(body)
    return Child([sys.executable, "-c", script], process.environment(changes), memory_limit=memory_limit)


def gone(pid: int) -> bool:
    """Whether process `pid` ends within minutes; a zombie that nobody reaps has ended."""
    deadline = time.monotonic() + MINUTES
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.02)
    return False


def test_requests_and_events_go_to_and_fro_and_the_end_of_stdin_ends_an_idle_child() -> None:
    with start("for r in channel.requests(): channel.send({'sum': r['a'] + r['b'], 'text': 'é'})") as child:
        for a in range(3):
            child.send({"a": a, "b": 1})
            assert child.receive(MINUTES) == {"sum": a + 1, "text": "é"}
        child._stdin.close()
        assert child.wait(MINUTES)
        assert child.exit_word() == "exit 0"


def test_the_end_of_stdin_ends_a_busy_child_too() -> None:
    with start("channel.send({}); time.sleep(3600)") as child:
        child.receive(MINUTES)
        child._stdin.close()
        assert child.wait(MINUTES)
        assert child.exit_word() == "exit 1"


def test_a_request_larger_than_the_pipe_arrives_whole() -> None:
    with start("for r in channel.requests(): channel.send({'length': len(r['text'])})") as child:
        child.send({"text": "x" * 900_000})
        assert child.receive(MINUTES) == {"length": 900_000}


def test_a_child_that_reads_nothing_is_a_timeout_for_the_sender() -> None:
    script = "import time; time.sleep(3600)"
    with Child([sys.executable, "-c", script], process.environment({})) as child, pytest.raises(Timeout):
        child.send({"text": "x" * 900_000}, timeout=0.3)


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGABRT", "SIGILL", "SIGFPE", "SIGBUS"])
def test_a_crash_by_signal_is_told_by_the_name_of_the_signal(name: str) -> None:
    with start(f"channel.send({{}}); os.kill(os.getpid(), signal.{name})") as child:
        assert child.receive(MINUTES) == {}
        with pytest.raises(Closed, match=f"killed by {name}$"):
            child.receive(MINUTES)


def test_an_exit_status_is_told_with_what_was_printed_last() -> None:
    with start("print('so long', file=sys.stderr); sys.exit(3)") as child:
        with pytest.raises(Closed, match=r"^exit 3$"):
            child.receive(MINUTES)
        assert "so long" in child.stderr_tail()


def test_a_kill_from_outside_is_told_apart_from_one_by_samebits() -> None:
    with start("channel.send({}); time.sleep(3600)") as child:
        child.receive(MINUTES)
        os.kill(child.pid, signal.SIGKILL)
        with pytest.raises(Closed, match=r"SIGKILL .not by samebits"):
            child.receive(MINUTES)
    with start("channel.send({}); time.sleep(3600)") as child:
        child.receive(MINUTES)
        child.kill(grace=0)
        assert child.exit_word() == "killed by SIGKILL"


def test_a_hang_is_a_timeout_and_the_child_can_be_killed() -> None:
    with start("channel.send({}); time.sleep(3600)") as child:
        child.receive(MINUTES)
        with pytest.raises(Timeout):
            child.receive(0.2)
        assert child.exit_word() == "still running"
        child.kill()
        assert child.exit_word() == "killed by SIGTERM"


def test_a_child_that_ignores_term_is_killed_after_the_grace() -> None:
    with start("signal.signal(signal.SIGTERM, signal.SIG_IGN); channel.send({}); time.sleep(3600)") as child:
        child.receive(MINUTES)
        child.kill(grace=0.2)
        assert child.exit_word() == "killed by SIGKILL"


def test_megabytes_of_output_neither_block_nor_fill_memory() -> None:
    body = """
        os.write(2, b'first words\\n')
        for fd in (1, 2):
            for _ in range(8): os.write(fd, b'\\xff\\x1b[31m' * 100_000)
        os.write(1, b'last words\\n')
        channel.send({'done': True})
        time.sleep(3600)
    """
    with start(body) as child:
        assert child.receive(MINUTES) == {"done": True}
        child.kill(grace=0)
        child.close()
        tail = child.stderr_tail()
    assert tail.startswith("first words")
    assert tail.endswith("last words\n")
    assert "bytes left out" in tail
    assert "\x1b" not in tail
    assert len(tail) < 100_000


def test_what_is_printed_to_standard_output_does_not_break_the_protocol() -> None:
    with start("""print('{"event": "forged"}', flush=True); channel.send({'event': 'real'})""") as child:
        assert child.receive(MINUTES) == {"event": "real"}


def test_a_child_that_closes_stdout_and_stderr_still_answers() -> None:
    with start("os.close(1); os.close(2); channel.send({'ok': 1}); time.sleep(3600)") as child:
        assert child.receive(MINUTES) == {"ok": 1}


def test_a_child_that_closes_its_pipe_and_runs_on_says_so() -> None:
    with start("os.close(channel._fd); time.sleep(3600)") as child, pytest.raises(Closed, match="runs on"):
        child.receive(MINUTES)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"hello\n", "not a JSON object"),
        (b"[1, 2]\n", "not a JSON object"),
        (b"\xff\xfe\x00\n", "not a JSON object"),
        (b"\n", "not a JSON object"),
        (b'{"a": 1', "exit 0"),
        (b"[" * 100_000 + b"\n", "not a JSON object"),
        (b'{"a": "\\ud800"}\n', "not a JSON object"),
        (b"x" * (process.LINE_LIMIT + 1) + b"\n", "more than 1048576 bytes"),
    ],
)
def test_a_malformed_line_is_a_protocol_error_and_never_an_exception_of_the_decoder(
    line: bytes, why: str, tmp_path: Path
) -> None:
    file = tmp_path / "line"
    file.write_bytes(line)
    body = f"""
        data = memoryview(open({str(file)!r}, 'rb').read())
        while data: data = data[os.write(channel._fd, data):]
    """
    with start(body) as child, pytest.raises((ProtocolError, Closed), match=why):
        child.receive(MINUTES)


def test_a_line_without_end_is_refused_while_it_still_flows() -> None:
    with start("while True: os.write(channel._fd, b'x' * 65536)") as child:
        with pytest.raises(ProtocolError):
            child.receive(MINUTES)
        with pytest.raises(ProtocolError):
            child.receive(MINUTES)


def test_drops_of_a_line_do_not_stretch_the_deadline() -> None:
    """Else the child would have to end first."""
    body = "channel.send({})\nfor _ in range(6000): os.write(channel._fd, b' '); time.sleep(0.01)"
    with start(body) as child:
        child.receive(MINUTES)
        with pytest.raises(Timeout):
            child.receive(0.3)


@pytest.mark.parametrize("how", ["plain", "ignores TERM", "own session", "orphan"])
def test_the_whole_tree_dies_with_the_child(how: str) -> None:
    sleeper = "import time; print(flush=True); time.sleep(3600)"
    if how == "ignores TERM":
        sleeper = f"import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); {sleeper}"
    body = f"""
        own = {how == "own session"}
        p = subprocess.Popen([sys.executable, '-c', {sleeper!r}], stdout=subprocess.PIPE, start_new_session=own)
        p.stdout.readline()
        channel.send({{'pid': p.pid}})
        p.returncode = 0
        if {how == "orphan"}: os._exit(0)
        time.sleep(3600)
    """
    with start(body) as child:
        pid = child.receive(MINUTES)["pid"]
        if how == "orphan":
            assert child.wait(MINUTES)
        child.kill(grace=0.5)
        assert gone(pid)


def test_a_daemon_that_left_session_and_parent_is_found_by_its_token() -> None:
    body = """
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                channel.send({'pid': os.getpid()})
                time.sleep(3600)
            os._exit(0)
        time.sleep(3600)
    """
    with start(body) as child:
        pid = child.receive(MINUTES)["pid"]
        child.kill(grace=0)
        assert gone(pid)


def test_zombie_children_do_not_delay_the_kill() -> None:
    body = """
        for _ in range(5):
            if os.fork() == 0: os._exit(0)
        channel.send({})
        time.sleep(3600)
    """
    with start(body) as child:
        child.receive(MINUTES)
        begun = time.monotonic()
        child.kill(grace=MINUTES)
        assert time.monotonic() - begun < MINUTES


def test_a_memory_eater_is_killed_and_the_reason_names_the_limit() -> None:
    body = "hoard = []\nwhile True: hoard.append(b'x' * (1 << 24)); time.sleep(0.02)"
    with start(body, memory_limit=200 << 20) as child, pytest.raises(Closed, match=r"over the limit of 0\.20 GiB"):
        child.receive(MINUTES)


def test_memory_of_descendants_counts() -> None:
    eater = "import time; x = b'x' * (300 << 20); time.sleep(3600)"
    body = f"subprocess.run([sys.executable, '-c', {eater!r}])"
    with start(body, memory_limit=250 << 20) as child, pytest.raises(Closed, match="over the limit"):
        child.receive(MINUTES)


def test_a_child_under_its_limit_is_left_alone() -> None:
    with start("time.sleep(0.5); channel.send({})", memory_limit=2 << 30) as child:
        assert child.receive(MINUTES) == {}


SUPERVISOR = """
import sys, time
from harness import process
body = sys.argv[1]
child = process.Child([sys.executable, "-c", body], process.environment({}))
print(child.receive(300)["pid"], flush=True)
time.sleep(3600)
"""


@pytest.mark.parametrize(
    "work",
    [
        "time.sleep(3600)",
        "list(channel.requests())",
        # A hung driver call that keeps the interpreter's lock: only the kernel can end it.
        "import ctypes; ctypes.PyDLL(None).sleep(3600)",
    ],
)
def test_a_worker_ends_when_its_supervisor_is_killed(work: str) -> None:
    body = OPEN + f"channel.send({{'pid': os.getpid()}}); {work}"
    argv = [sys.executable, "-c", SUPERVISOR, body]
    with subprocess.Popen(argv, env=process.environment({}), stdout=subprocess.PIPE, text=True) as supervisor:
        assert supervisor.stdout is not None
        pid = int(supervisor.stdout.readline())
        assert psutil.pid_exists(pid)
        supervisor.kill()
    assert gone(pid)


def test_a_child_handles_no_signals() -> None:
    body = """
        handled = [s for s in range(1, 65) if callable(signal.getsignal(s))]
        channel.send({'handled': handled})
    """
    with start(body) as child:
        assert child.receive(MINUTES) == {"handled": []}


def test_the_private_pipe_is_not_passed_on_to_grandchildren() -> None:
    """Else a compiler that a crashed driver left behind would keep the pipe open, and the crash look like a hang."""
    body = "subprocess.Popen(['sleep', '3600']); os.kill(os.getpid(), signal.SIGSEGV)"
    with start(body) as child, pytest.raises(Closed, match="SIGSEGV"):
        child.receive(MINUTES)


def test_kill_from_another_thread_ends_a_receive() -> None:
    with start("channel.send({}); time.sleep(3600)") as child:
        child.receive(MINUTES)
        timer = threading.Timer(0.2, child.kill, kwargs={"grace": 0})
        timer.start()
        with pytest.raises(Closed):
            child.receive(MINUTES)
        timer.join()


def test_no_file_descriptor_is_left_open() -> None:
    gc.collect()  # what other tests left for it to close
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with start("channel.send({})") as child:
            child.receive(MINUTES)
    with pytest.raises(OSError):
        Child(["/no/such/program"], {})
    assert len(os.listdir("/proc/self/fd")) == before


def test_by_hand_a_child_prints_its_events() -> None:
    argv = [sys.executable, "-c", OPEN + "print('noise'); channel.send({'a': 1})"]
    done = subprocess.run(
        argv, env=process.environment({}), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
    )
    assert done.stdout == '{"a":1}\n'
    assert "noise" in done.stderr


def test_one_line_takes_the_first_line_that_says_something() -> None:
    assert process.one_line("\n  \n  error: \x1b[31mred\tapple\nmore") == "error: [31mred apple"
    assert process.one_line("x" * 50, 10) == "x" * 9 + "…"
    assert process.one_line("") == ""
