# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Command lines that start several processes of a run."""

from __future__ import annotations

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
        return ["torchrun", "--standalone", f"--nproc-per-node={count}", "--no-python"]
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
