//===- launcher_test.cpp - Which of how many processes this is ------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "comm/launch.h"
#include "grt/launcher.h"

#include <gtest/gtest.h>

#include <map>
#include <sstream>

using namespace grt;

namespace {

/// Variables as "NAME=value NAME=value".
std::map<std::string, std::string> parsed(const std::string &text) {
  std::map<std::string, std::string> variables;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    size_t equals = word.find('=');
    variables[word.substr(0, equals)] = word.substr(equals + 1);
  }
  return variables;
}

Status readFrom(const std::string &text, Launch &launch) {
  auto variables = parsed(text);
  return readLaunch(launch, [&](const char *name) -> const char * {
    auto at = variables.find(name);
    return at == variables.end() ? nullptr : at->second.c_str();
  });
}

// Variables that launchers set and that are looked at, for one process each.
// Recorded: mpirun of Open MPI 4.1.4, mpiexec.hydra of MPICH 4.0.2. Those of
// srun are what its manual says, those of torchrun and PyTorchJob what their
// sources set.

const std::string openMpi =
    "OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2 "
    "OMPI_COMM_WORLD_NODE_RANK=1 OMPI_COMM_WORLD_RANK=1 "
    "OMPI_COMM_WORLD_SIZE=2 OMPI_UNIVERSE_SIZE=2 PMIX_ID=505151489.1 "
    "PMIX_NAMESPACE=505151489 PMIX_RANK=1 ";
const std::string mpich =
    "MPI_LOCALNRANKS=2 MPI_LOCALRANKID=1 PMI_FD=8 PMI_RANK=1 PMI_SIZE=2 ";
/// Task 5 of 8 on two nodes.
const std::string slurm =
    "SLURM_PROCID=5 SLURM_LOCALID=1 SLURM_NODEID=1 SLURM_NTASKS=8 "
    "SLURM_STEP_NUM_TASKS=8 SLURM_STEP_NUM_NODES=2 SLURM_NPROCS=8 "
    "SLURM_STEP_TASKS_PER_NODE=4(x2) SLURM_JOB_ID=77 SLURM_STEP_ID=0 ";
const std::string slurmPmix = slurm + "PMIX_RANK=5 "
                                      "PMIX_NAMESPACE=slurm.pmix.77.0 ";
/// Worker 11 of 16 on two nodes.
const std::string torchrun =
    "RANK=11 LOCAL_RANK=3 WORLD_SIZE=16 LOCAL_WORLD_SIZE=8 GROUP_RANK=1 "
    "GROUP_WORLD_SIZE=2 ROLE_RANK=11 ROLE_WORLD_SIZE=16 ROLE_NAME=default "
    "MASTER_ADDR=alpha MASTER_PORT=29500 TORCHELASTIC_RUN_ID=none "
    "TORCHELASTIC_RESTART_COUNT=0 TORCHELASTIC_MAX_RESTARTS=0 "
    "TORCHELASTIC_USE_AGENT_STORE=True ";
const std::string pyTorchJob =
    "MASTER_ADDR=job-master-0 MASTER_PORT=23456 WORLD_SIZE=4 RANK=2 "
    "PYTHONUNBUFFERED=1 PET_NNODES=4 ";

struct Row {
  const char *name;
  std::string environment;
  /// Launch::text(), or the message of an error.
  std::string expected;
};

const std::string torchrunText =
    "process 11 of 16 (RANK, WORLD_SIZE), 3 of 8 (LOCAL_RANK, "
    "LOCAL_WORLD_SIZE) on its machine, started by torchrun";
const std::string openMpiText =
    "process 1 of 2 (OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE), 1 of 2 "
    "(OMPI_COMM_WORLD_LOCAL_RANK, OMPI_COMM_WORLD_LOCAL_SIZE) on its machine, "
    "started by Open MPI";
const std::string nobody = "one process, started by no launcher";

const Row rows[] = {
    {"nothing", "HOME=/root", nobody},
    {"mpirun", openMpi, openMpiText},
    {"mpirun in a job of Slurm",
     openMpi + "SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NTASKS=16 "
               "SLURM_JOB_ID=77",
     openMpiText},
    {"torchrun", torchrun, torchrunText},
    {"srun torchrun, MpiDefault=pmix",
     torchrun + "PMIX_RANK=1 PMIX_NAMESPACE=slurm.pmix.77.0 SLURM_PROCID=1 "
                "SLURM_LOCALID=0 SLURM_STEP_NUM_TASKS=2",
     torchrunText},
    {"mpirun -N 1 torchrun",
     torchrun + "OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=1 "
                "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 PMIX_RANK=1",
     torchrunText},
    {"mpiexec.hydra -ppn 1 torchrun",
     torchrun + "PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=1",
     torchrunText},
    {"srun --mpi=pmix", slurmPmix,
     "process 5 of 8 (PMIX_RANK, SLURM_STEP_NUM_TASKS), 1 of 4 "
     "(SLURM_LOCALID, SLURM_STEP_TASKS_PER_NODE) on its machine, started by "
     "PMIx"},
    {"prterun, whose daemons are tasks of Slurm",
     "PMIX_RANK=5 PMIX_NAMESPACE=prterun-alpha-12@1 SLURM_PROCID=1 "
     "SLURM_LOCALID=0 SLURM_STEP_NUM_TASKS=2",
     "process 5 (PMIX_RANK), started by PMIx"},
    {"PyTorchJob", pyTorchJob,
     "process 2 of 4 (RANK, WORLD_SIZE), started by variables"},
    {"srun", slurm,
     "srun started 8 tasks without PMIx, so they cannot find each other; use "
     "srun --mpi=pmix or mpirun, or set MASTER_ADDR to the machine of process "
     "0 and MASTER_PORT to a free port there"},
    {"srun with an address", slurm + "MASTER_ADDR=alpha WORLD_SIZE=8",
     "process 5 of 8 (SLURM_PROCID, SLURM_STEP_NUM_TASKS), 1 of 4 "
     "(SLURM_LOCALID, SLURM_STEP_TASKS_PER_NODE) on its machine, started by "
     "srun"},
    {"srun -n 1",
     "SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_STEP_NUM_TASKS=1 PMI_SIZE=1 "
     "PMI_RANK=0",
     nobody},
    {"mpiexec.hydra", mpich,
     "the launcher of another MPI started 2 processes (PMI_SIZE), each of "
     "which would run everything alone; use Open MPI's mpirun, torchrun or "
     "srun --mpi=pmix, or set MASTER_ADDR to the machine of process 0 and "
     "MASTER_PORT to a free port there"},
    {"mpiexec.hydra with an address", mpich + "MASTER_ADDR=alpha",
     "process 1 of 2 (PMI_RANK, PMI_SIZE), 1 of 2 (MPI_LOCALRANKID, "
     "MPI_LOCALNRANKS) on its machine, started by PMI"},
    {"Cray's PMI",
     "PMI_RANK=3 PMI_SIZE=8 PMI_LOCAL_RANK=3 PMI_LOCAL_SIZE=4 "
     "MASTER_ADDR=alpha",
     "process 3 of 8 (PMI_RANK, PMI_SIZE), 3 of 4 (PMI_LOCAL_RANK, "
     "PMI_LOCAL_SIZE) on its machine, started by PMI"},
};

TEST(Launcher, ReadsWhatLaunchersSet) {
  for (const Row &row : rows) {
    Launch launch;
    Status status = readFrom(row.environment, launch);
    EXPECT_EQ(status ? launch.text() : status.message(), row.expected)
        << row.name;
    EXPECT_TRUE(status || status.exitCode() == ExitInvalid) << row.name;
  }
}

TEST(Launcher, SaysHowProcessesAreJoined) {
  for (auto [environment, byMpi, byTcp] :
       {std::tuple(openMpi, true, false),
        {slurmPmix, true, false},
        {torchrun, false, true},
        {pyTorchJob, false, true},
        {mpich + "MASTER_ADDR=alpha", false, true},
        {std::string(), false, false}}) {
    Launch launch;
    ASSERT_TRUE(readFrom(environment, launch));
    EXPECT_EQ(launch.joinsByMpi(), byMpi) << environment;
    EXPECT_EQ(launch.joinsByTcp(), byTcp) << environment;
    EXPECT_EQ(launch.address.empty(), !byTcp) << environment;
  }
}

/// One variable of a right environment is made another.
TEST(Launcher, RefusesWhatIsNoNumberOrContradicts) {
  const std::string same = ": expected the same number in both; variables of "
                           "another launcher may have been inherited";
  auto expected = [](const char *name, const char *range, const char *found) {
    return std::string(name) + ": expected a whole number from " + range +
           ", found " + found;
  };
  const std::tuple<std::string, std::string, std::string> changes[] = {
      {torchrun, "LOCAL_RANK=abc", expected("LOCAL_RANK", "0 to 7", "'abc'")},
      {torchrun, "LOCAL_RANK=8", expected("LOCAL_RANK", "0 to 7", "'8'")},
      {torchrun, "RANK=+3", expected("RANK", "0 to 15", "'+3'")},
      {torchrun, "RANK=-1", expected("RANK", "0 to 15", "'-1'")},
      {torchrun, "RANK=16", expected("RANK", "0 to 15", "'16'")},
      {torchrun, "RANK=3x", expected("RANK", "0 to 15", "'3x'")},
      {torchrun, "RANK=", expected("RANK", "0 to 15", "nothing")},
      {torchrun, "WORLD_SIZE=4294967297",
       expected("WORLD_SIZE", "1 to 65536", "'4294967297'")},
      {torchrun, "LOCAL_WORLD_SIZE=17",
       expected("LOCAL_WORLD_SIZE", "1 to 16", "'17'")},
      {torchrun, "MASTER_ADDR=",
       "MASTER_ADDR: expected the machine of process 0, as RANK and "
       "WORLD_SIZE are set, found nothing"},
      {pyTorchJob, "MASTER_ADDR=",
       "MASTER_ADDR: expected the machine of process 0, as RANK and "
       "WORLD_SIZE are set, found nothing"},
      {pyTorchJob, "RANK=", expected("RANK", "0 to 3", "nothing")},
      {openMpi, "OMPI_COMM_WORLD_RANK=2",
       expected("OMPI_COMM_WORLD_RANK", "0 to 1", "'2'")},
      {openMpi, "PMIX_RANK=0",
       "OMPI_COMM_WORLD_RANK is 1, PMIX_RANK is 0" + same},
      {slurmPmix, "SLURM_PROCID=4", "PMIX_RANK is 5, SLURM_PROCID is 4" + same},
      {slurmPmix, "SLURM_LOCALID=4",
       expected("SLURM_LOCALID", "0 to 3", "'4'")},
      {slurmPmix, "SLURM_STEP_TASKS_PER_NODE=8",
       "SLURM_STEP_TASKS_PER_NODE: expected the tasks of more than 1 nodes, "
       "as SLURM_NODEID is 1, found '8'"},
      {slurmPmix, "SLURM_STEP_TASKS_PER_NODE=4(x",
       expected("SLURM_STEP_TASKS_PER_NODE", "1 to 65536", "''")},
      {slurm + "MASTER_ADDR=alpha ", "WORLD_SIZE=16",
       "WORLD_SIZE is 16, SLURM_STEP_NUM_TASKS is 8" + same},
      {mpich + "MASTER_ADDR=alpha ", "PMI_RANK=2",
       expected("PMI_RANK", "0 to 1", "'2'")}};
  for (const auto &[environment, change, message] : changes) {
    Launch launch;
    // The later one of two counts.
    Status status = readFrom(environment + " " + change, launch);
    EXPECT_EQ(status.message(), message) << change;
    EXPECT_EQ(status.exitCode(), ExitInvalid) << change;
  }
}

TEST(Launcher, CountsTheTasksOfANodeOfSlurm) {
  for (auto [list, node, tasks] : {std::tuple("4(x2),3", "2", 3),
                                   {"4(x2),3", "1", 4},
                                   {"1,8", "1", 8},
                                   {"6", "0", 6}}) {
    Launch launch;
    Status status = readFrom(slurmPmix +
                                 "SLURM_LOCALID=0 "
                                 "SLURM_STEP_TASKS_PER_NODE=" +
                                 list + " SLURM_NODEID=" + node,
                             launch);
    ASSERT_TRUE(status) << status.message();
    EXPECT_EQ(launch.localSize->value, tasks) << list;
  }
}

/// Under mpirun itself, where the test is run so, too.
TEST(Launcher, OfThisProcess) {
  Launch launch = launchOfEnvironment();
  if (launch.launcher != Launcher::OpenMpi)
    GTEST_SKIP() << "not under mpirun";
  EXPECT_EQ(launch.size->value, 2);
  EXPECT_EQ(launch.localSize->value, 2);
  EXPECT_EQ(launch.localRank->value, launch.rank->value);
  EXPECT_EQ(launch.localRank->from, "OMPI_COMM_WORLD_LOCAL_RANK");
}

} // namespace
