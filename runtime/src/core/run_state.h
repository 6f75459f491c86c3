//===- run_state.h - What a run and a pass are of -------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_RUN_STATE_H
#define GRT_CORE_RUN_STATE_H

#include "comm/activity.h"
#include "core/backend_table.h"
#include "core/layout.h"
#include "core/parameter_rules.h"
#include "core/trace.h"
#include "grt/session.h"
#include "program/reader.h"

#include <atomic>
#include <memory>
#include <string>
#include <vector>

namespace grt {

/// A backend. Its library is never unloaded: threads that it started may
/// outlive a session, and the next session would load it again.
class BackendHandle {
public:
  /// Loads `libgrt_<name>.so` from `folder`, or from beside this library.
  BackendHandle(const std::string &name, const std::string &folder);
  /// Uses a backend that is part of the process.
  explicit BackendHandle(const grt_backend *backend) : table(*backend) {}
  BackendHandle(const BackendHandle &) = delete;
  BackendHandle &operator=(const BackendHandle &) = delete;

  const grt_backend &operator*() const { return *table; }
  const grt_backend *operator->() const { return &*table; }

private:
  BackendTable table;
};

/// A global batch: of each of the program's data the values, and over how many
/// of them the loss is a mean: those of the counted datum that are not
/// negative.
struct GlobalBatch {
  std::vector<std::vector<char>> values;
  uint64_t countedValues = 0;
};

/// What a pass over a batch is told. It does not change while ranks run: those
/// that are late with one pass are not disturbed by what is set for the next.
struct PassInput {
  uint64_t step = 0; ///< of the running or last step, from 1
  grt_mode mode = GRT_MODE_TRAIN;
  Hyperparameters hyperparameters = {};
  std::shared_ptr<const GlobalBatch> batch = {};
  /// The batch behind it, if its forward passes are to begin; only where
  /// gradients are late.
  std::shared_ptr<const GlobalBatch> next = {};
  bool begun = false;    ///< forward passes of `batch` were done ahead
  bool recorded = false; ///< a trace is taken of the step
  /// How long its device waits is measured in the step, which is no graph then.
  bool measuresWaits = false;
  /// What this process asks all others for: see Session::anywhere.
  uint32_t requests = 0;
  /// The global batch is so many of the program's.
  uint64_t parts = 1;
  /// In evaluate mode: Inspector::hits is wanted.
  bool countsHits = false;
  /// In generate mode the row of micro-batch 0 whose logits are kept, and how
  /// many from there on; -1: none's.
  int64_t scoredToken = -1, scoredRows = 1;
  /// Of a program that generates: calls of gvx::CallWhen::TextsBegin run.
  bool textsBegin = true;
};

/// What all ranks of a session share; read-only while ranks run.
struct RunState {
  const Program &program;
  const Manifest &manifest;
  const grt_backend &backend;
  SessionOptions options;
  /// The kernels of what is done at home, where that is the host's memory and
  /// the backend has a device; null elsewhere.
  const grt_backend *homeBackend = nullptr;
  bool poison = false;
  double copyRate = 0; ///< see SessionOptions
  int threadsPerRank = 1;
  bool oneProcess = true; ///< has all ranks
  /// [exchange][global rank] and [tie].
  std::vector<LocalTables> exchanges = {};
  std::vector<TieTables> ties = {};
  /// By parameter what the run's groups say; empty without groups.
  std::vector<ParameterRule> rules = {};
  /// Set when a rank has failed; the others stop at their next operation.
  std::atomic<bool> failed = false;
};

/// Who a rank is, and what it works for; does not change.
struct RankFacts {
  RankFacts(RunState &state, Communicator &communicator, Activity &activity,
            Recorder *recorder);

  const grt_schedule &schedule() const {
    return state.program.file().schedules()[size_t(roleNumber)];
  }

  RunState &state;
  const Manifest &manifest;
  Communicator &host; ///< for what is in the host's memory
  Activity &activity;
  Recorder *const recorder; ///< null: nothing is recorded
  const int self;           ///< of all ranks
  int local = 0;            ///< of the role's
  int roleNumber = 0;
  const Role *role = nullptr;
};

} // namespace grt

#endif // GRT_CORE_RUN_STATE_H
