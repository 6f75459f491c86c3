//===- preflight.h - What of a machine will go wrong ------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What goes wrong minutes into a run on GPUs, or makes it slow without a word,
// can be seen in its first seconds. Facts are read in one place
// (machine_facts.cpp); everything here is a pure function of them.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_RUN_PREFLIGHT_H
#define GALVATRON_RUN_PREFLIGHT_H

#include "grt/session.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

/// A GPU as the driver's management library (NVML) tells it, which takes no
/// memory of it.
struct CardFacts {
  std::string name, uuid;
  int major = 0, minor = 0; ///< its compute capability
  uint64_t totalBytes = 0, freeBytes = 0;
  std::vector<int> processes; ///< that compute on it
  /// "0000:1b:00.0", and the cores at its node of memory, ascending; empty:
  /// unknown.
  std::string busId;
  std::vector<int> nearCores;
  /// NVML's compute mode: 0 shared, 2 nobody, 3 one process.
  int computeMode = 0;
  bool divided = false; ///< into parts (MIG)
  /// Whether it is joined to the switches of its machine, where it has some.
  enum class Fabric { None, Ready, Waiting, Failed } fabric = Fabric::None;
  /// Errors of its memory since the driver was loaded that were not corrected.
  uint64_t memoryErrors = 0;
  bool waitsForReset = false; ///< to replace rows of its memory
  uint64_t slowdowns = 0;     ///< bits of NVML's reasons for low clocks
};

/// A network interface that is up.
struct InterfaceFacts {
  std::string name;
  bool loopback = false, bridge = false;
};

/// The facts of the machine, as this process sees it.
struct MachineFacts {
  std::string host;
  /// The size of /dev/shm; nothing where there is none.
  std::optional<uint64_t> sharedMemoryBytes;
  /// Hard limits: of locked memory (nothing: none), and of open files.
  std::optional<uint64_t> lockedBytes;
  uint64_t openFiles = 0;
  bool hasInfiniBand = false;
  /// Processor cores of the machine, those that this process may run on, and
  /// how many a control group lets it use at a time (0: all).
  int machineCores = 0, allowedCores = 0;
  std::vector<int> allowed; ///< their numbers, ascending
  double coreQuota = 0;
  std::vector<InterfaceFacts> interfaces;
  std::map<std::string, std::string> variables; ///< NCCL_*
  /// Why cards cannot be looked at; empty: they can.
  std::string cardProblem;
  std::string driver; ///< "550.54.14"
  int driverCuda = 0; ///< what it supports, 12040 for 12.4; 0: unknown
  std::vector<CardFacts> cards;
};

/// The settings that the CUDA backend was built with.
struct BuildFacts {
  int toolkit = 0;           ///< 13000; 0: there is no such backend
  std::string architectures; ///< in CMake's words, "80-real, 90-virtual"
};

/// The facts of what a process of the run will do.
struct RunFacts {
  bool usesCards = false;
  /// Numbers of the cards that it takes.
  std::vector<int> cards;
  uint64_t bytesOfCard = 0; ///< the largest arena
  int machineProcesses = 1; ///< of the run, on this machine
  int64_t ranks = 1;
  bool severalHosts = false;
};

/// Something that is wrong.
struct Finding {
  /// The exit code of a run that ends by it; 0: one that is worse for it.
  int ends = 0;
  std::string text;

  bool operator==(const Finding &other) const = default;
};
using Findings = std::vector<Finding>;

// Each returns what it finds.

/// NCCL's and MPI's processes of one machine meet in /dev/shm, of which
/// containers have 64 MiB.
Findings judgeSharedMemory(const MachineFacts &machine);
/// InfiniBand registers memory, and every process has connections to many.
Findings judgeLimits(const MachineFacts &machine, const RunFacts &run);
/// A card wants threads that launch, move data and read files.
Findings judgeCores(const MachineFacts &machine, const RunFacts &run);
/// A process that is bound to cores which are not near its card.
Findings judgeNearness(const MachineFacts &machine, const RunFacts &run);
/// NCCL_SOCKET_IFNAME by NCCL's rules: prefixes, `=` exact names, `^` others.
Findings judgeInterfaces(const MachineFacts &machine, const RunFacts &run);
/// The driver beside the toolkit, kernels for each card, and its memory.
Findings judgeCards(const MachineFacts &machine, const BuildFacts &build,
                    const RunFacts &run);
/// Judges what the cards are set to, what has broken on them, and what slows
/// them.
Findings judgeHealth(const MachineFacts &machine, const RunFacts &run);
/// "NVIDIA H100, driver 580.65.06 for CUDA up to 13.0", of the first card of
/// the run; empty: unknown.
std::string gpuText(const MachineFacts &machine, const RunFacts &run);
/// Why a card has low clocks, "too hot, the power supply brakes it"; empty: it
/// does what it can within its power.
std::string slowdownText(uint64_t slowdowns);
/// Makes all of these judgements that concern the run.
Findings judge(const MachineFacts &machine, const BuildFacts &build,
               const RunFacts &run);

/// The interfaces that NCCL takes by this value of NCCL_SOCKET_IFNAME.
std::vector<InterfaceFacts>
chosenInterfaces(const std::string &value,
                 const std::vector<InterfaceFacts> &interfaces);
/// Whether kernels that were built for `architectures` run on a card.
bool hasKernels(const std::string &architectures, int major, int minor);
/// Numbers, among `cards`, of those that CUDA_VISIBLE_DEVICES lets a process
/// use, in its order; null: all.
std::vector<int> visibleCards(const char *value,
                              const std::vector<CardFacts> &cards);

/// The numbers in "0-3,8,10-11", as the kernel lists cores; empty if it is no
/// such list.
std::vector<int> parseCores(const std::string &list);
/// The cores that a process which takes one card is to run on: those near the
/// card, where it may run on all of the machine; empty: as it is.
std::vector<int> coresToTake(const MachineFacts &machine, const RunFacts &run);

/// The facts and findings that a process tells the others.
struct Told {
  std::string host;
  Findings findings;
  std::map<std::string, std::string> variables;
};
std::string encode(const Told &told);
/// Decodes them; nothing if the text has another form.
std::optional<Told> decodeTold(const std::string &text);

/// Joins what all processes found, by their numbers, each finding once, with
/// the hosts where it is so if they are several; and variables in which they
/// differ.
Findings joinTold(const std::vector<Told> &all);

/// Reads the machine; files are below `root`, and the libraries' are not.
MachineFacts readMachine(const std::string &root = "");
/// Adds what NVML says of the cards, and the kernel of the cores near them.
void readCards(MachineFacts &machine, const std::string &root = "");
/// The clock of a card's multiprocessors at this moment, and why it is low, as
/// NVML's bits. Keeps the library open.
grt::DeviceClock readClock(int card);
/// The cores near a device of the bus; empty: unknown.
std::vector<int> readNearCores(const std::string &root,
                               const std::string &busId);
/// Binds this thread, and those that it starts, to cores. False if that is
/// refused.
bool runOn(const std::vector<int> &cores);
/// Returns the facts of the build that this is part of.
BuildFacts ownBuildFacts();

#endif // GALVATRON_RUN_PREFLIGHT_H
