//===- backend_table_test.cpp - Backends of another age -------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/backend_table.h"
#include "core/executor.h"
#include "recording.h"
#include "reference_backend.h"
#include "test_program.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

using namespace grt;
using namespace grt::test;

namespace {

/// Loses nothing but what stands behind `bytes`: that is filled with what
/// would fault if it were called.
template <typename Structure>
Structure cutTo(const Structure &whole, size_t bytes) {
  Structure table;
  std::memset(static_cast<void *>(&table), 0x5a, sizeof(table));
  std::memcpy(static_cast<void *>(&table), &whole, bytes);
  table.bytes = uint32_t(bytes);
  return table;
}

/// The losses of three steps of a small model on one rank, and the kernel
/// choices of its session, which is given some.
Status train(const grt_backend &backend, std::vector<double> &losses,
             std::string *choices = nullptr) {
  ModelPlan plan;
  TestProgram code(plan);
  std::shared_ptr<const Program> program;
  std::unique_ptr<Session> session;
  SessionOptions options;
  options.seed = 17;
  options.backend = &backend;
  if (choices)
    options.kernelChoices = *choices;
  if (Status status = Program::loadMemory(code.file(), "test", program);
      !status)
    return status;
  if (Status status = Session::create(program, options, session); !status)
    return status;
  session->hyperparameters().learningRate = 0.05;
  std::mt19937 random{5};
  for (int step = 0; step < 3; ++step) {
    std::vector<int32_t> tokens, labels;
    for (int64_t i = 0; i < plan.batch * plan.seqLen; ++i) {
      tokens.push_back(int32_t(random() % uint64_t(plan.vocab)));
      labels.push_back(int32_t(random() % uint64_t(plan.vocab)));
    }
    StepResult result;
    if (Status status = session->setBatch(tokens, labels); !status)
      return status;
    if (Status status = session->step(result); !status)
      return status;
    losses.push_back(result.loss);
  }
  if (choices)
    *choices = session->kernelChoices();
  return session->finish();
}

std::vector<double> expectedLosses() {
  std::vector<double> losses;
  Status status = train(*referenceBackend(), losses);
  EXPECT_TRUE(status) << status.message();
  return losses;
}

void expectRefused(const grt_backend &backend, const std::string &message) {
  std::vector<double> losses;
  Status status = train(backend, losses);
  EXPECT_EQ(status.exitCode(), 1);
  EXPECT_NE(status.message().find(message), std::string::npos)
      << "expected: " << message << "\nfound: " << status.message();
}

TEST(BackendTable, ShorterTablesServeProgramsThatNeedNoMore) {
  grt_backend backend =
      cutTo(*referenceBackend(), offsetof(grt_backend, map_arena));
  // The last kernel that the program needs.
  backend.kernel_count = GRT_KERNEL_NORM + 1;
  std::vector<double> losses;
  Status status = train(backend, losses);
  EXPECT_TRUE(status) << status.message();
  EXPECT_EQ(losses, expectedLosses());
}

TEST(BackendTable, AKernelThatIsMissingIsRefusedByName) {
  grt_backend backend = *referenceBackend();
  backend.kernel_count = GRT_KERNEL_NORM;
  expectRefused(backend, "backend 'reference' has no kernel 'norm'");
}

TEST(BackendTable, LongerTablesAndUnknownKernelsAreNotRead) {
  struct {
    grt_backend known;
    void *unknown[4];
  } longer = {*referenceBackend(), {}};
  std::vector<grt_kernel_function> kernels(
      referenceBackend()->kernels,
      referenceBackend()->kernels + referenceBackend()->kernel_count);
  kernels.resize(GRT_KERNEL_COUNT + 7);
  longer.known.bytes = sizeof(longer);
  longer.known.kernels = kernels.data();
  longer.known.kernel_count = uint32_t(kernels.size());
  std::vector<double> losses;
  Status status = train(longer.known, losses);
  EXPECT_TRUE(status) << status.message();
  EXPECT_EQ(losses, expectedLosses());
}

TEST(BackendTable, AShorterDeviceHasNoGraphsNoClockAndNoCollectives) {
  const grt_backend &model = *recording::backendAround(referenceBackend());
  grt_device device = cutTo(*model.device, offsetof(grt_device, begin_graph));
  grt_backend backend = model;
  backend.device = &device;
  BackendTable complete(backend);
  EXPECT_TRUE(complete->device->synchronise);
  EXPECT_FALSE(complete->device->begin_graph);
  EXPECT_FALSE(complete->device->peak_bytes);
  EXPECT_FALSE(complete->device->local_collectives);
  std::vector<double> losses;
  Status status = train(backend, losses);
  EXPECT_TRUE(status) << status.message();
  EXPECT_EQ(losses, expectedLosses());
}

TEST(BackendTable, TablesThatEndTooEarlyAreRefused) {
  const std::string again = ": compile it again with this runtime's "
                            "grt/backend.h";
  grt_backend backend = *referenceBackend();
  backend.bytes = 0; // as tables were before they had sizes
  expectRefused(backend,
                "backend 'reference' has a table 'backend' of 0 bytes, "
                "expected at least " +
                    str(offsetof(grt_backend, map_arena)) + again);
  const grt_backend &model = *recording::backendAround(referenceBackend());
  grt_device device = cutTo(*model.device, offsetof(grt_device, synchronise));
  backend = model;
  backend.device = &device;
  expectRefused(backend, "backend 'recording' has a table 'device' of " +
                             str(offsetof(grt_device, synchronise)) + " bytes");
  device = *model.device;
  grt_device_collectives collectives =
      cutTo(*device.local_collectives, offsetof(grt_device_collectives, abort));
  device.local_collectives = &collectives;
  expectRefused(backend, "has a table 'local collectives' of ");
}

TEST(BackendTable, WhatEveryBackendHasMustBeThere) {
  grt_backend backend = *referenceBackend();
  backend.allocate = nullptr;
  expectRefused(backend, "backend 'reference' lacks 'allocate'");
  backend = *referenceBackend();
  backend.abi_version = GRT_ABI_VERSION + 1;
  expectRefused(backend, "backend 'reference' has ABI version " +
                             str(GRT_ABI_VERSION + 1) + ", this runtime has " +
                             str(GRT_ABI_VERSION));
}

TEST(BackendTable, CopiesPointToTheirOwnTables) {
  BackendTable first(*recording::backendAround(referenceBackend()));
  BackendTable second = first;
  second.kernels[GRT_KERNEL_ADD] = nullptr;
  second.device.begin_graph = nullptr;
  second.localCollectives.name = "other";
  EXPECT_TRUE(first->kernels[GRT_KERNEL_ADD]);
  EXPECT_FALSE(second->kernels[GRT_KERNEL_ADD]);
  EXPECT_TRUE(first->device->begin_graph);
  EXPECT_FALSE(second->device->begin_graph);
  EXPECT_STREQ(second->device->local_collectives->name, "other");
}

/// The choices that a backend was given, and whether it got them before its
/// ranks were made.
std::string givenChoices;
bool ranksMade = false, givenInTime = true;

TEST(BackendTable, ChoicesAreGivenBeforeRanksAreMade) {
  grt_backend backend = *referenceBackend();
  backend.choices = [] { return givenChoices.c_str(); };
  backend.choose = [](const char *text, char *message, size_t bytes) {
    givenInTime &= !ranksMade;
    givenChoices = text;
    if (givenChoices != "wrong")
      return 0;
    std::snprintf(message, bytes, "expected lines, found '%s'", text);
    return 1;
  };
  backend.create_rank = [](int32_t rank, int32_t threads) {
    ranksMade = true;
    return referenceBackend()->create_rank(rank, threads);
  };
  std::vector<double> losses;
  std::string choices = "some";
  Status status = train(backend, losses, &choices);
  EXPECT_TRUE(status) << status.message();
  EXPECT_TRUE(ranksMade);
  EXPECT_EQ(choices, "some");
  // A session without any undoes those of the one before.
  ranksMade = false;
  EXPECT_TRUE(train(backend, losses));
  EXPECT_EQ(givenChoices, "");
  EXPECT_TRUE(givenInTime);

  choices = "wrong";
  status = train(backend, losses, &choices);
  EXPECT_EQ(status.exitCode(), 2);
  EXPECT_NE(status.message().find(
                "the checkpoint's kernel choices: expected lines, found"),
            std::string::npos)
      << status.message();

  // A backend that has none, and one that cannot take back what it gives.
  choices = "some";
  EXPECT_TRUE(train(*referenceBackend(), losses, &choices));
  EXPECT_EQ(choices, "");
  backend.choose = nullptr;
  choices = givenChoices = "some";
  EXPECT_TRUE(train(backend, losses, &choices));
  EXPECT_EQ(choices, "");
}

TEST(BackendTable, APluginOfAnotherAgeIsLoaded) {
  setenv("GRT_TEST_KERNELS", str(GRT_KERNEL_NORM + 1).c_str(), 1);
  BackendHandle enough("short", TEST_BACKENDS);
  EXPECT_FALSE(enough->map_arena);
  EXPECT_FALSE(enough->kernels[GRT_KERNEL_SCALE]);
  std::vector<double> losses;
  Status status = train(*enough, losses);
  EXPECT_TRUE(status) << status.message();
  EXPECT_EQ(losses, expectedLosses());

  setenv("GRT_TEST_KERNELS", str(GRT_KERNEL_NORM).c_str(), 1);
  BackendHandle less("short", TEST_BACKENDS);
  expectRefused(*less, "backend 'short' has no kernel 'norm'");
}

} // namespace
