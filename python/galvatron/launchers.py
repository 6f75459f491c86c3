# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Command lines that start several processes of a run."""

from __future__ import annotations

import re
from typing import List, Optional, Sequence, Union

from . import errors

Launcher = Union[str, Sequence[str]]

_NAMES = "'torchrun', 'mpirun', 'srun' or the words of a command"


def command(launcher: Optional[Launcher], processes: Optional[int], ranks: int,
            hosts: Optional[Union[str, Sequence[str]]] = None) -> List[str]:
    """What stands before the tool on the command line. `processes` is how many
    are started; one for each of the program's `ranks` without it. `hosts` are
    mpirun's: names, with the processes of each behind a colon."""
    if launcher is None or not isinstance(launcher, str):
        given = [name for name, value in (("nproc", processes), ("hosts", hosts))
                 if value is not None]
        if given and launcher is None:
            raise errors.InvalidInput(f"{given[0]}: expected a launcher, {_NAMES}")
        if given:
            raise errors.InvalidInput(
                f"{given[0]}: expected it among the words of the launcher's command")
        return [str(word) for word in launcher or []]
    count = ranks if processes is None else processes
    if count < 1 or ranks % count:
        raise errors.InvalidInput(
            f"nproc: expected a divisor of the program's {ranks} ranks, found {count}")
    if hosts is not None and launcher != "mpirun":
        raise errors.InvalidInput(
            f"hosts: expected launcher='mpirun', found '{launcher}', which has them "
            "of its own")
    if launcher == "torchrun":
        # Without the dashes it takes the tool's --log for one of its own.
        return ["torchrun", "--standalone", f"--nproc-per-node={count}",
                "--no-python", "--"]
    if launcher == "srun":
        return ["srun", "--mpi=pmix", "-n", str(count)]
    if launcher == "mpirun":
        names = hosts if isinstance(hosts, str) else ",".join(hosts or [])
        return ["mpirun", "-n", str(count), *(["--host", names] if names else [])]
    raise errors.InvalidInput(f"launcher: expected {_NAMES}, found '{launcher}'")


def ranks_of_each(launcher: Optional[Launcher], processes: Optional[int],
                  ranks: int) -> List[str]:
    """The option for several ranks a process, where they are fewer."""
    if isinstance(launcher, str) and processes and processes < ranks:
        return [f"--ranks={ranks // processes}"]
    return []


def own_exit_code(code: int, output: Sequence[str]) -> int:
    """The exit code of the process that failed first, where the launcher, which
    ended with `code`, says it among its lines: torchrun itself ends with 1."""
    cause = [index for index, line in enumerate(output) if "Root Cause" in line]
    for line in output[cause[-1]:] if cause and code == 1 else ():
        found = re.match(r"\s*exitcode\s*:\s*(\d+)\b", line)
        if found:
            return int(found.group(1))
    return code


def own_lines(output: Sequence[str]) -> List[str]:
    """The lines up to those that torchrun adds about a process that failed."""
    result: List[str] = []
    for line in output:
        if re.match(r"[EWI]\d{4} |Traceback \(most recent call last\)", line):
            break
        result.append(line)
    return result
