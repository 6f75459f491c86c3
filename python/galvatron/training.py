# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A run of a compiled program, as an iterator of its steps."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import os
import pathlib
import queue
import signal
import subprocess
import threading
from typing import (Any, Callable, Deque, Dict, Iterator, List, Mapping, Optional,
                    Sequence, TextIO, Tuple)

from . import data as data_files
from . import errors, launchers, tools

# Lines of a run's output that are kept, for the message when it fails.
_KEPT_LINES = 200
# Ended by SIGINT after saving (docs/operations.md).
_EXIT_INTERRUPTED = 130


@dataclasses.dataclass(frozen=True)
class Step:
    """What a step reports. `data` has all keys of its log line."""

    step: int
    loss: float
    grad_norm: Optional[float]
    lr: float
    ms: float
    data: Mapping[str, Any] = dataclasses.field(repr=False)

    @property
    def validation_loss(self) -> Optional[float]:
        """After this step, where it was measured."""
        return self.data.get("validation-loss")


@dataclasses.dataclass(frozen=True)
class Summary:
    """What a run reports at its end. `data` is the whole of its summary."""

    data: Mapping[str, Any] = dataclasses.field(repr=False)
    ended_by: str
    steps: int
    first_loss: Optional[float]
    final_loss: Optional[float]
    validation_loss: Optional[float]
    median_step_ms: float
    predicted_step_ms: float
    tokens_per_second: Optional[float]
    samples_per_second: Optional[float]

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> "Summary":
        """From the JSON of the tool."""
        values: List[Any] = [data.get(field.name.replace("_", "-"))
                             for field in dataclasses.fields(cls)[1:]]
        return cls(data, *values)


class Training(Iterator[Step]):
    """A run of galvatron-run in a process of its own.

    Iterating gives its steps as they end; the run goes on meanwhile. Leaving a
    `with` block, `stop`, Ctrl-C and dropping the object end it as SIGINT does: after the step that it
    is in it saves what it was told to save. Ctrl-C raises KeyboardInterrupt when
    that is done. A run that fails raises its error from the iteration."""

    def __init__(self, arguments: Sequence[str], data: Any,
                 on_end: Optional[Callable[["Training"], None]] = None,
                 launcher: Sequence[str] = ()):
        self._folder = tools.folder_of(self)
        self._on_end = on_end
        self._ended = False
        self._stopped = False
        self.summary: Optional[Summary] = None
        self._lines: Deque[str] = collections.deque(maxlen=_KEPT_LINES)
        self._events: "queue.Queue[Optional[str]]" = queue.Queue()
        self._launched = bool(launcher)
        log, reader, writer = self._open_log()
        summary = os.path.join(self._folder, "summary.json")
        arguments = [*arguments, *data_files.options(data, self._folder)]
        # A session of its own: Ctrl-C in a terminal reaches this process, which
        # passes it on once.
        self._process = subprocess.Popen(
            [*launcher, tools.find("galvatron-run"), *arguments, f"--log={log}",
             f"--summary={summary}"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, pass_fds=(writer,), start_new_session=True,
            text=True, errors="replace")
        assert self._process.stdout is not None
        # They do not know this object: it could not be dropped while they run.
        self._threads = [
            threading.Thread(target=_read_log, daemon=True,
                             args=(os.fdopen(reader), self._events)),
            threading.Thread(target=_read_output, daemon=True,
                             args=(self._process.stdout, self._lines, writer))]
        for thread in self._threads:
            thread.start()

    def _open_log(self) -> Tuple[str, int, int]:
        """Where steps are logged, and both ends of it. Launchers hand no open
        files on, so that theirs is a pipe with a name."""
        if not self._launched:
            reader, writer = os.pipe()
            return f"/dev/fd/{writer}", reader, writer
        log = os.path.join(self._folder, "log")
        os.mkfifo(log, 0o600)
        reader = os.open(log, os.O_RDONLY | os.O_NONBLOCK)
        writer = os.open(log, os.O_WRONLY)
        os.set_blocking(reader, True)
        return log, reader, writer

    def __iter__(self) -> "Training":
        return self

    def __next__(self) -> Step:
        try:
            line = None if self._ended else self._events.get()
            if line is None:
                self._finish()
                raise StopIteration
            record = json.loads(line)
            return Step(record["step"], _number(record.get("loss")),
                        record.get("grad-norm"), record.get("lr", 0.0),
                        record.get("ms", 0.0), record)
        except KeyboardInterrupt:
            self.stop()
            raise

    def wait(self) -> Summary:
        """Lets the run go to its end, and says what it reported."""
        collections.deque(self, maxlen=0)
        assert self.summary is not None
        return self.summary

    def stop(self) -> Optional[Summary]:
        """Ends the run after the step that it is in, and after saving."""
        if not self._ended:
            self._stopped = True
            if self._process.poll() is None:
                self._process.send_signal(signal.SIGINT)
            self._finish()
        return self.summary

    def _finish(self) -> None:
        """Waits for the process and reads what it left; once."""
        if self._ended:
            return
        self._ended = True
        code = self._process.wait()
        for thread in self._threads:
            thread.join()
        path = pathlib.Path(self._folder) / "summary.json"
        data: Dict[str, Any] = {}
        if path.exists() and path.stat().st_size:
            data = json.loads(path.read_text(encoding="utf-8"))
            self.summary = Summary.of(data)
        # Launchers have a code of their own for it.
        ended = code == _EXIT_INTERRUPTED or bool(
            self._launched and self.summary and
            self.summary.ended_by in ("SIGINT", "SIGTERM"))
        if self._launched:
            code = launchers.own_exit_code(code, list(self._lines))
        if code and not (self._stopped and ended):
            raise errors.from_exit_code(code, self._message(code))
        if self._on_end:
            self._on_end(self)

    def _message(self, code: int) -> str:
        """The lines from the first error on; without one the last."""
        lines: List[str] = list(self._lines)
        for index, line in enumerate(lines):
            if "galvatron-run: error:" in line:
                return "\n".join(launchers.own_lines(lines[index:]))
        return "\n".join(lines[-1:]) or f"galvatron-run ended with exit code {code}"

    @property
    def output(self) -> str:
        """The last lines that the run printed."""
        return "\n".join(self._lines)

    def __enter__(self) -> "Training":
        return self

    def __exit__(self, *_: Any) -> None:
        self.stop()

    def __del__(self) -> None:
        # A loop that an exception left has no other end.
        if hasattr(self, "_threads"):
            with contextlib.suppress(errors.Error):
                self.stop()


def _number(value: Any) -> float:
    return float("nan") if value is None else float(value)


def _read_log(log: TextIO, events: "queue.Queue[Optional[str]]") -> None:
    with log:
        for line in log:
            events.put(line)
    events.put(None)


def _read_output(output: TextIO, lines: Deque[str], writer: int) -> None:
    """Until the run closes it; so does the log that it wrote to, whose other
    writer this process is."""
    with output:
        for line in output:
            lines.append(line.rstrip("\n"))
    os.close(writer)
