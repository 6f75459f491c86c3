//===- launcher.h - Which of how many processes this is ---------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Launchers tell a process by environment variables which of how many it is,
// and launchers stand inside each other: srun starts torchrun, mpirun runs in a
// job of Slurm, and the variables of the outer one are inherited. This is the
// one place that reads them; everything else asks it.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_LAUNCHER_H
#define GRT_LAUNCHER_H

#include "grt/session.h"

#include <functional>
#include <optional>
#include <string>

namespace grt {

/// The launcher that started this process as one of several. The first one
/// counts whose variables are there, in this order (None is last):
enum class Launcher {
  None,
  /// TORCHELASTIC_RUN_ID or GROUP_RANK; then RANK, WORLD_SIZE, MASTER_ADDR,
  /// LOCAL_RANK, LOCAL_WORLD_SIZE. Its workers inherit what srun or mpirun said
  /// to torchrun itself, the same on all of a machine.
  Torchrun,
  /// OMPI_COMM_WORLD_SIZE, _RANK, _LOCAL_RANK, _LOCAL_SIZE. Also before a
  /// PMIX_RANK, which must be the same.
  OpenMpi,
  /// PMIX_RANK. Under srun --mpi=pmix the rest is Slurm's: SLURM_PROCID,
  /// SLURM_STEP_NUM_TASKS, SLURM_LOCALID, SLURM_STEP_TASKS_PER_NODE.
  Pmix,
  /// MASTER_ADDR, WORLD_SIZE and RANK, as Kubernetes' PyTorchJob sets them.
  Variables,
  /// SLURM_PROCID of SLURM_STEP_NUM_TASKS > 1 without PMIx; such processes can
  /// join only where MASTER_ADDR says at which machine.
  Slurm,
  /// PMI_RANK of PMI_SIZE > 1 (MPICH, Intel MPI, Cray, srun --mpi=pmi2); as
  /// above.
  Pmi
};

/// The launcher as messages name it: "torchrun", "Open MPI", ..
const char *nameOf(Launcher launcher);

/// A number, and the variable that it stands in.
struct LaunchNumber {
  int value = 0;
  std::string from;
};

/// Facts about this process in the environment.
struct Launch {
  Launcher launcher = Launcher::None;
  /// Empty where the launcher does not say; rank and size are always there but
  /// for None, and for PMIx, where the library may know the size alone.
  std::optional<LaunchNumber> rank, size, localRank, localSize;
  /// Address of the machine of process 0; empty if MPI knows it.
  std::string address;

  /// The number of this process; 0 without a launcher.
  int number() const { return rank ? rank->value : 0; }
  /// True if processes are joined by MPI, else by TCP at `address`.
  bool joinsByMpi() const {
    return launcher == Launcher::OpenMpi || launcher == Launcher::Pmix;
  }
  bool joinsByTcp() const {
    return launcher != Launcher::None && !joinsByMpi();
  }
  /// "process 3 of 8 (RANK, WORLD_SIZE), 3 of 4 on its machine (LOCAL_RANK,
  /// LOCAL_WORLD_SIZE), started by torchrun".
  std::string text() const;
};

/// The value of a variable, null where it is not there.
using Environment = std::function<const char *(const char *name)>;

/// Reads who started this process. An empty variable counts as none. Errors
/// (exit code 2): a number that is none or out of its range, numbers that
/// contradict each other, and processes that would each take itself for the
/// only one: those of PMI and of srun without PMIx where no MASTER_ADDR lets
/// them join, and RANK and WORLD_SIZE without it.
Status readLaunch(Launch &launch, const Environment &environment = {});

} // namespace grt

#endif // GRT_LAUNCHER_H
