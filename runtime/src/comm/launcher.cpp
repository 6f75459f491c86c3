//===- launcher.cpp - Which of how many processes this is -----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "grt/launcher.h"
#include "base/error.h"
#include "comm/launch.h"

#include <cstdlib>
#include <cstring>

namespace grt {

int wholeNumber(const std::string &name, const char *text, int least,
                int most) {
  // Nine digits are always an int.
  size_t digits = text ? std::strspn(text, "0123456789") : 0;
  bool isNumber = digits > 0 && digits <= 9 && !text[digits];
  int value = isNumber ? std::atoi(text) : 0;
  if (!isNumber || value < least || value > most)
    invalid(name + ": expected a whole number from " + std::to_string(least) +
            " to " + std::to_string(most) + ", found " +
            (text ? "'" + std::string(text) + "'" : "nothing"));
  return value;
}

namespace {

constexpr int mostProcesses = 1 << 16;

/// Reads the variables of one process.
class Reader {
public:
  explicit Reader(const Environment &environment) : environment(environment) {}

  const char *text(const char *name) const {
    const char *value = environment ? environment(name) : std::getenv(name);
    return value && *value ? value : nullptr;
  }
  LaunchNumber number(const char *name, int least, int most) const {
    return {wholeNumber(name, text(name), least, most), name};
  }
  std::optional<LaunchNumber> numberIfAny(const char *name, int least,
                                          int most) const {
    return text(name) ? std::optional(number(name, least, most)) : std::nullopt;
  }
  /// Reads the number of processes, then this one's rank among them.
  void world(Launch &launch, const char *rank, const char *size) const {
    launch.size = number(size, 1, mostProcesses);
    launch.rank = number(rank, 0, launch.size->value - 1);
  }
  void machine(Launch &launch, const char *rank, const char *size) const {
    int most = launch.size ? launch.size->value : mostProcesses;
    launch.localSize = numberIfAny(size, 1, most);
    launch.localRank = numberIfAny(
        rank, 0, (launch.localSize ? launch.localSize->value : most) - 1);
  }
  /// Tasks of the machine that this one of Slurm is on: of "4(x2),3" and node 2
  /// it is 3.
  std::optional<LaunchNumber> slurmTasks() const;

private:
  const Environment &environment;
};

std::optional<LaunchNumber> Reader::slurmTasks() const {
  const char *name = "SLURM_STEP_TASKS_PER_NODE";
  const char *list = text(name);
  std::optional<LaunchNumber> node =
      numberIfAny("SLURM_NODEID", 0, mostProcesses);
  if (!list || !node)
    return std::nullopt;
  int left = node->value;
  const char *at = list;
  auto next = [&](int least) {
    size_t digits = std::strspn(at, "0123456789");
    std::string number(at, digits);
    at += digits;
    return wholeNumber(name, number.c_str(), least, mostProcesses);
  };
  while (true) {
    int tasks = next(1), nodes = 1;
    if (std::strncmp(at, "(x", 2) == 0) {
      at += 2;
      nodes = next(1);
      at += *at == ')';
    }
    if (left < nodes)
      return LaunchNumber{tasks, name};
    left -= nodes;
    if (*at++ != ',')
      invalid(std::string(name) + ": expected the tasks of more than " +
              std::to_string(node->value) + " nodes, as SLURM_NODEID is " +
              std::to_string(node->value) + ", found '" + list + "'");
  }
}

/// Two variables that must say the same.
void expectEqual(const LaunchNumber &one, const LaunchNumber &other) {
  if (one.value != other.value)
    invalid(one.from + " is " + std::to_string(one.value) + ", " + other.from +
            " is " + std::to_string(other.value) +
            ": expected the same number in both; variables of another launcher "
            "may have been inherited");
}

void readOpenMpi(const Reader &reader, Launch &launch) {
  reader.world(launch, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
  reader.machine(launch, "OMPI_COMM_WORLD_LOCAL_RANK",
                 "OMPI_COMM_WORLD_LOCAL_SIZE");
  // The library believes this one.
  if (auto other = reader.numberIfAny("PMIX_RANK", 0, mostProcesses))
    expectEqual(*launch.rank, *other);
}

/// Slurm's variables of a step of several tasks, or with PMIx of any.
void readSlurm(const Reader &reader, Launch &launch) {
  const char *size = reader.text("SLURM_STEP_NUM_TASKS")
                         ? "SLURM_STEP_NUM_TASKS"
                         : "SLURM_NTASKS";
  reader.world(launch, "SLURM_PROCID", size);
  launch.localRank = reader.numberIfAny("SLURM_LOCALID", 0, mostProcesses);
  launch.localSize = reader.slurmTasks();
  if (launch.localRank && launch.localSize)
    launch.localRank =
        reader.number("SLURM_LOCALID", 0, launch.localSize->value - 1);
}

void readPmix(const Reader &reader, Launch &launch) {
  launch.rank = reader.number("PMIX_RANK", 0, mostProcesses - 1);
  // Daemons of another launcher are tasks of Slurm themselves, and the
  // processes that they start inherit their numbers.
  const char *space = reader.text("PMIX_NAMESPACE");
  bool slurms = !space || std::strncmp(space, "slurm.", 6) == 0;
  if (!slurms || !reader.text("SLURM_PROCID"))
    return;
  LaunchNumber rank = *launch.rank;
  readSlurm(reader, launch);
  expectEqual(rank, *launch.rank);
  launch.rank = rank;
}

/// Advice for processes that know their number, but not where process 0 is.
const char *const joinByAddress =
    "set MASTER_ADDR to the machine of process 0 and MASTER_PORT to a free "
    "port there";

/// Processes with numbers of `launcher` that meet at MASTER_ADDR, if it is
/// there.
void joinAtAddress(const Reader &reader, Launch &launch,
                   const std::string &otherwise) {
  const char *address = reader.text("MASTER_ADDR");
  if (!address)
    invalid(otherwise + ", or " + joinByAddress);
  launch.address = address;
  if (auto size = reader.numberIfAny("WORLD_SIZE", 1, mostProcesses))
    expectEqual(*size, *launch.size);
}

void readVariables(const Reader &reader, Launch &launch) {
  reader.world(launch, "RANK", "WORLD_SIZE");
  reader.machine(launch, "LOCAL_RANK", "LOCAL_WORLD_SIZE");
  if (!reader.text("MASTER_ADDR"))
    invalid("MASTER_ADDR: expected the machine of process 0, as RANK and "
            "WORLD_SIZE are set, found nothing");
  launch.address = reader.text("MASTER_ADDR");
}

void readPmi(const Reader &reader, Launch &launch) {
  reader.world(launch, "PMI_RANK", "PMI_SIZE");
  if (reader.text("MPI_LOCALRANKID"))
    reader.machine(launch, "MPI_LOCALRANKID", "MPI_LOCALNRANKS");
  else
    reader.machine(launch, "PMI_LOCAL_RANK", "PMI_LOCAL_SIZE");
  joinAtAddress(reader, launch,
                "the launcher of another MPI started " +
                    std::to_string(launch.size->value) +
                    " processes (PMI_SIZE), each of which would run everything "
                    "alone; use Open MPI's mpirun, torchrun or srun "
                    "--mpi=pmix");
}

void readSlurmAlone(const Reader &reader, Launch &launch) {
  std::string otherwise =
      "srun started " + std::string(reader.text("SLURM_STEP_NUM_TASKS")) +
      " tasks without PMIx, so they cannot find each other; use srun "
      "--mpi=pmix or mpirun";
  // Numbers are of no use without it.
  if (reader.text("MASTER_ADDR"))
    readSlurm(reader, launch);
  joinAtAddress(reader, launch, otherwise);
}

void read(const Reader &reader, Launch &launch) {
  auto isAbove1 = [&](const char *name) {
    auto number = reader.numberIfAny(name, 0, mostProcesses);
    return number && number->value > 1;
  };
  auto found = [&](Launcher launcher, auto readNumbers) {
    launch.launcher = launcher;
    readNumbers(reader, launch);
  };
  if (reader.text("TORCHELASTIC_RUN_ID") || reader.text("GROUP_RANK"))
    found(Launcher::Torchrun, readVariables);
  else if (reader.text("OMPI_COMM_WORLD_SIZE"))
    found(Launcher::OpenMpi, readOpenMpi);
  else if (reader.text("PMIX_RANK"))
    found(Launcher::Pmix, readPmix);
  else if (reader.text("RANK") &&
           (reader.text("MASTER_ADDR") ? reader.text("WORLD_SIZE") != nullptr
                                       : isAbove1("WORLD_SIZE")))
    found(Launcher::Variables, readVariables);
  else if (isAbove1("PMI_SIZE"))
    found(Launcher::Pmi, readPmi);
  else if (isAbove1("SLURM_STEP_NUM_TASKS"))
    found(Launcher::Slurm, readSlurmAlone);
  else if (reader.text("MASTER_ADDR") && reader.text("WORLD_SIZE"))
    // Several processes were meant, but RANK is not set: readVariables says so.
    found(Launcher::Variables, readVariables);
}

} // namespace

const char *nameOf(Launcher launcher) {
  switch (launcher) {
  case Launcher::None:
    return "nobody";
  case Launcher::Torchrun:
    return "torchrun";
  case Launcher::OpenMpi:
    return "Open MPI";
  case Launcher::Pmix:
    return "PMIx";
  case Launcher::Variables:
    return "variables";
  case Launcher::Slurm:
    return "srun";
  case Launcher::Pmi:
    return "PMI";
  }
  return "";
}

std::string Launch::text() const {
  if (launcher == Launcher::None)
    return "one process, started by no launcher";
  auto pair = [](const std::optional<LaunchNumber> &which,
                 const std::optional<LaunchNumber> &count) {
    std::string numbers = which ? std::to_string(which->value) : "?";
    std::string from = which ? which->from : "";
    if (count) {
      numbers += " of " + std::to_string(count->value);
      from += (from.empty() ? "" : ", ") + count->from;
    }
    return numbers + " (" + from + ")";
  };
  std::string text = "process " + pair(rank, size);
  if (localRank || localSize)
    text += ", " + pair(localRank, localSize) + " on its machine";
  return text + ", started by " + nameOf(launcher);
}

Status readLaunch(Launch &launch, const Environment &environment) {
  launch = {};
  return guarded([&] { read(Reader(environment), launch); });
}

Launch launchOfEnvironment() {
  Launch launch;
  if (Status status = readLaunch(launch); !status)
    throw Error(status.exitCode(), status.message());
  return launch;
}

} // namespace grt
