# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The parts of gpu-check that run programs of several ranks through NCCL on one
GPU, which NCCL 2.30 and later allow (NCCL_MULTI_RANK_GPU_ENABLE=1).

Threads of one process come first: they have one context, so their kernels run
beside each other. Processes take turns on the GPU, and are for launches and
kills alone. No time is reported from here: ranks share what each would have.
"""

import ctypes
import json
import lzma
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

# The first version with several ranks on a GPU.
LEAST = 23000
# How a program of so many ranks is tried, until it runs. Kernels of all ranks
# must fit the GPU at one time; what runs out of room hangs.
WAYS = [{"NCCL_MAX_CTAS": "1"}, {},
        {"NCCL_MAX_CTAS": "1", "NCCL_P2P_DISABLE": "1"}]
STEPS = 5
KILLS = 10
# Seconds: of one program, and what a run gets to end in after a kill.
PROGRAM_LIMIT = 40
END_LIMIT = 10


def strategies(ranks):
    """(name, pipeline degree, strategy) of programs for so many ranks: those that
    show most, then the others."""
    half = ranks // 2
    first = [("tp", 1, f"tp{ranks}"), ("sdp", 1, f"sdp{ranks}"), ("pp", ranks, "single")]
    rest = [("dp", 1, f"dp{ranks}"), ("zdp", 1, f"zdp{ranks}"),
            ("sdp-ckpt", 1, f"sdp{ranks}.ckpt")]
    if half > 1:
        first.append(("tp-dp", 1, f"tp2.dp{half}"))
        rest.append(("pp-tp", 2, f"tp{half}"))
    return first, rest


def programs(which):
    """Names of the programs, 2 ranks before 4 and 8; `which`: 0 the first ones."""
    return [f"{ranks}-{name}" for ranks in (2, 4, 8)
            for name, _, _ in strategies(ranks)[which]]


def compile_programs(prepare, config):
    """Compiles all of them to prepare.carry/nccl."""
    folder = prepare.carry / "nccl"
    folder.mkdir(exist_ok=True)
    for ranks in (2, 4, 8):
        for name, degree, strategy in sum(strategies(ranks), []):
            prepare.compile(config, ranks, 16, folder / f"{ranks}-{name}.gvx",
                            "--seq-len=32", f"--pipeline-degree={degree}",
                            f"--micro-batches={2 if degree > 1 else 1}",
                            f"--strategy={strategy}")
    prepare.compile(config, 1, 16, folder / "1-single.gvx", "--seq-len=32",
                    "--pipeline-degree=1", "--micro-batches=1", "--strategy=single")


def carry_library(source, folder):
    """Packs the library, small enough to be sent."""
    folder.mkdir(exist_ok=True)
    target = folder / "libnccl.so.2.xz"
    if source.suffix == ".xz":
        shutil.copy(source, target)
        return
    with open(source, "rb") as data, lzma.open(target, "wb", preset=6) as packed:
        shutil.copyfileobj(data, packed, 1 << 20)


def sizes(carry):
    """What is carried, as lines: bytes of NCCL, of the runtime, of the programs,
    and of all."""
    def total(paths):
        return sum(path.stat().st_size for path in paths if path.is_file())

    parts = {"NCCL": total(carry.glob("nccl/*.xz")),
             "runtime": total(carry.glob("build/**/*")),
             "programs": total(carry.glob("**/*.gvx")),
             "all": total(carry.glob("**/*"))}
    return [f"{name}: {size / 1e6:.1f} MB" for name, size in parts.items()]


def version_of(path):
    """23007 for 2.30.7; 0 where the library cannot be loaded."""
    found = ctypes.c_int(0)
    try:
        ctypes.CDLL(str(path)).ncclGetVersion(ctypes.byref(found))
    except (OSError, AttributeError):
        return 0
    return found.value


def version_text(code):
    if not code:
        return "none"
    return f"{code // 10000}.{code // 100 % 100}.{code % 100}"


class NcclOnOneCard:
    """Bodies of parts. `check` is the Check that runs them, `failures` its
    exceptions: one for what failed and one for what is left out."""

    def __init__(self, check, file, failures, compare):
        self.check, self.file = check, file
        self.failed, self.skipped = failures
        self.compare = compare
        self.found = check.result.setdefault("nccl-on-one-card", {})
        self.folder = check.out / "nccl"
        self.way = {}  # by the number of ranks, what worked

    def bodies(self):
        return {"nccl-library": self.library, "nccl-sequences": self.sequences,
                "nccl-first": lambda log, limit: self.threads(log, limit, 0),
                "nccl-abort": self.abort, "nccl-deadline": self.deadline,
                "nccl-rest": lambda log, limit: self.threads(log, limit, 1)}

    def environment(self, **more):
        path = f"{self.folder}:{os.environ.get('GRT_CUDA_LIBRARIES', '')}"
        return {"GRT_CUDA_LIBRARIES": path, "NCCL_MULTI_RANK_GPU_ENABLE": "1",
                "GRT_NCCL_INIT_SECONDS": "30", **more}

    def first_line(self):
        """The machine's own NCCL, which may be new enough, and its free disc, on
        which what was carried may not fit."""
        self.folder.mkdir(exist_ok=True)
        free = shutil.disk_usage(self.folder).free
        own = version_of("libnccl.so.2")
        self.check.say(f"NCCL of this machine: {version_text(own)}; free disc: "
                       f"{free / 1e9:.1f} GB")
        self.found.update({"own-version": own, "free-bytes": free})

    def library(self, _, limit):
        """Unpacks the library that is used, and asks for its version."""
        self.folder.mkdir(exist_ok=True)
        own = version_of("libnccl.so.2")
        target = self.folder / "libnccl.so.2"
        target.unlink(missing_ok=True)
        source = self.file
        if source is None or not source.exists():
            packed = self.check.carry / "nccl/libnccl.so.2.xz"
            source = packed if packed.exists() else None
        if source is None:
            if own < LEAST:
                raise self.failed(f"no NCCL of 2.30 or later: --nccl=FILE, or "
                                  f"{self.check.carry}/nccl/libnccl.so.2.xz")
            return f"the machine's own, {version_text(own)}"
        if source.suffix == ".xz":
            with lzma.open(source) as packed, open(target, "wb") as data:
                shutil.copyfileobj(packed, data, 1 << 20)
        else:
            target.symlink_to(source.resolve())
        code = version_of(target)
        self.found["version"] = code
        if code < LEAST:
            raise self.failed(f"'{source}' is NCCL {version_text(code)}, expected 2.30 "
                              "or later")
        return version_text(code)

    def sequences(self, log, limit):
        test = self.check.bin / "grt-nccl-sequences-test"
        if not test.exists():
            raise self.skipped(f"no {test}")
        cudart = next((path for folder in
                       (*os.environ.get("GRT_CUDA_LIBRARIES", "").split(":"),
                        "/usr/local/cuda/lib64")
                       for path in sorted(pathlib.Path(folder or "/none").glob(
                           "libcudart.so.1*"))), None)
        if cudart is None:
            raise self.skipped("no libcudart.so")
        self.check.execute([test, f"--nccl={self.folder / 'libnccl.so.2'}",
                            f"--cudart={cudart}", "--gtest_brief=1"], log, limit,
                           self.environment())

    # -- threads of one process

    def threads(self, log, limit, which):
        """Losses of 5 steps beside one rank, with graphs and without."""
        end = time.monotonic() + limit
        made = self.check.out / "nccl-runs"
        made.mkdir(exist_ok=True)
        alone = made / "1-single.jsonl"
        if not alone.exists():
            self.train("1-single", alone, log, PROGRAM_LIMIT, {})
        rows = self.found.setdefault("programs", {})
        wrong, left = [], 0
        for name in programs(which):
            if not (self.check.carry / f"nccl/{name}.gvx").exists():
                continue
            for how, options in (("graphs", []), ("calls", ["--no-cuda-graph"])):
                if time.monotonic() > end - 5:
                    left += 1
                    continue
                key = f"{name} {how}"
                try:
                    rows[key] = self.one(name, made / f"{name}-{how}.jsonl", log,
                                         end, alone, options)
                except self.failed as why:
                    rows[key] = str(why)
                    wrong.append(f"{key}: {why}")
        if wrong:
            raise self.failed(f"{len(wrong)} of {len(rows)}: {wrong[0]}")
        if not rows:
            raise self.skipped(f"no programs in {self.check.carry / 'nccl'}")
        return f"{len(rows)} runs within 1e-5" + (f", {left} left out" if left else "")

    def one(self, name, path, log, end, alone, options):
        """The largest difference of losses from those of one rank."""
        ranks = int(name.split("-")[0])
        known = self.way.get(ranks)
        problem = None
        for way in [known] if known is not None else WAYS:
            if time.monotonic() > end - 2:
                break
            try:
                self.train(name, path, log,
                           min(PROGRAM_LIMIT, end - time.monotonic()), way, *options)
            except self.failed as why:
                problem = why
                continue
            self.way[ranks] = way
            difference = self.compare(path, alone)
            if not difference <= 1e-5:
                raise self.failed(f"losses differ by {difference:.3g}")
            return difference
        raise problem or self.failed("no time was left")

    def train(self, name, path, log, limit, way, *options):
        path.unlink(missing_ok=True)
        self.check.train(self.check.carry / f"nccl/{name}.gvx", log, limit, STEPS,
                         self.check.text, f"--log={path}", "--timeout=15", *options,
                         env=self.environment(GRT_CUDA_COLLECTIVES="nccl", **way))

    # -- processes

    def start(self, program, folder, steps, **environment):
        """Two processes of a run, each with its output in `folder`."""
        folder.mkdir(parents=True, exist_ok=True)
        port = 20000 + os.getpid() % 10000 + int(time.monotonic() * 10) % 2000
        processes = []
        for rank in range(2):
            env = {**os.environ, **self.environment(**WAYS[0]), **environment,
                   "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank),
                   "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                   "MASTER_PORT": str(port)}
            with open(folder / f"{rank}.log", "w") as output:
                processes.append(subprocess.Popen(
                    [str(self.check.bin / "galvatron-run"), str(program),
                     f"--steps={steps}", self.check.text, "--share-gpus",
                     "--no-link-check", f"--log={folder / 'steps.jsonl'}",
                     f"--flight-recorder={folder / 'flight.json'}"],
                    env=env, stdout=output, stderr=subprocess.STDOUT,
                    stdin=subprocess.DEVNULL))
        return processes

    @staticmethod
    def end(processes):
        for process in processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()

    def abort(self, _, limit):
        """A killed process ends the run within 10 s, with the record of what its
        ranks did last; ten times."""
        program = self.check.carry / "nccl/2-dp.gvx"
        end = time.monotonic() + limit
        took = []
        while len(took) < KILLS and time.monotonic() < end - END_LIMIT:
            folder = self.check.out / f"nccl-abort/{len(took)}"
            shutil.rmtree(folder, ignore_errors=True)
            processes = self.start(program, folder, 10 ** 6)
            try:
                took.append(self.kill_one(processes, folder, end))
            finally:
                self.end(processes)
            self.found["seconds-to-end-after-a-kill"] = took
        if len(took) < KILLS:
            raise self.failed(f"{len(took)} of {KILLS} runs: no time was left")
        return f"{KILLS} runs ended in at most {max(took):.1f} s"

    def kill_one(self, processes, folder, end):
        steps = folder / "steps.jsonl"
        while not steps.exists() or steps.read_text().count("\n") < 3:
            if any(process.poll() is not None for process in processes) or \
                    time.monotonic() > end:
                raise self.failed("did not train: " +
                                  (folder / "0.log").read_text()[-300:])
            time.sleep(0.05)
        processes[1].kill()
        begin = time.monotonic()
        try:
            code = processes[0].wait(END_LIMIT)
        except subprocess.TimeoutExpired:
            raise self.failed(f"the other process has not ended in {END_LIMIT} s") \
                from None
        took = time.monotonic() - begin
        if code != 4:
            raise self.failed(f"expected exit code 4, found {code}: " +
                              (folder / "0.log").read_text()[-300:])
        record = json.loads((folder / "flight.json").read_text())
        if not record.get("ranks"):
            raise self.failed("the flight record has no ranks")
        return took

    def deadline(self, _, limit):
        """A process that stands still while NCCL connects: the other one ends at
        its deadline. NCCL's log says when that is."""
        folder = self.check.out / "nccl-deadline"
        shutil.rmtree(folder, ignore_errors=True)
        processes = self.start(self.check.carry / "nccl/2-dp.gvx", folder, 2,
                               GRT_NCCL_INIT_SECONDS="3", NCCL_DEBUG="INFO",
                               NCCL_DEBUG_FILE=str(folder / "nccl.%p"))
        try:
            begin = time.monotonic()
            while not (folder / f"nccl.{processes[1].pid}").exists():
                if time.monotonic() - begin > limit - END_LIMIT or \
                        processes[1].poll() is not None:
                    raise self.failed("NCCL was not joined: " +
                                      (folder / "1.log").read_text()[-300:])
                time.sleep(0.002)
            processes[1].send_signal(signal.SIGSTOP)
            begin = time.monotonic()
            try:
                processes[0].wait(END_LIMIT)
            except subprocess.TimeoutExpired:
                raise self.failed(f"has not ended in {END_LIMIT} s") from None
            took = time.monotonic() - begin
        finally:
            self.end(processes)
        said = (folder / "0.log").read_text()
        if not re.search(r"NCCL has not connected 2 ranks in 3 s", said):
            raise self.failed(f"another end: {said[-300:]}")
        self.found["seconds-to-deadline"] = took
        return f"ended in {took:.1f} s"
