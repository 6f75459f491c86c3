//===- checkpoint.h - Checkpoints of a training run -----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A checkpoint is a folder `step-00000100` in the run's checkpoint folder. It
// holds whole tensors under their Hugging Face names, whatever the plan that
// wrote it, so any plan of the same model can go on from it (docs/operations.md
// describes the files). A folder with that name is complete: it is written
// under another name, flushed to the disk and renamed.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CHECKPOINT_H
#define GRT_CHECKPOINT_H

#include "grt/learning_rate.h"
#include "grt/session.h"

#include <optional>

namespace grt {

/// Identity of a data file: its content's, not its path, which may change.
struct DataIdentity {
  std::string format;
  uint64_t tokens = 0;
  uint64_t hash = 0; ///< of the first and the last 64 KiB
  bool operator==(const DataIdentity &) const = default;
};

/// All that a run needs to go on, besides the tensors. Random numbers are
/// counters keyed by seed, step and sample, so there is no other generator
/// state.
struct TrainingState {
  uint64_t step = 0;    ///< steps done
  uint64_t samples = 0; ///< training samples consumed: the data's position
  uint64_t seed = 0;
  bool decayAll = false;
  std::vector<ParameterGroup> groups;
  /// Global gradient norm of the last step, where the next one is clipped by
  /// it; negative: there is none.
  double normBefore = -1;
  uint64_t accumulate = 1; ///< batches of the program in a step
  /// Choices that the backend made for its kernels, see
  /// SessionOptions::kernelChoices.
  std::string kernelChoices;
  Hyperparameters hyperparameters; ///< without the rate, which `schedule` gives
  LearningRateSchedule schedule;
  std::vector<DataIdentity> data;
  int64_t sequenceLength = 0;
  double validationFraction = 0;
  /// The data that validation has of its own; empty: there are none.
  std::vector<DataIdentity> validationData;
  /// The least validation loss so far and behind which step it was; none: the
  /// run has not been validated.
  std::optional<double> bestLoss;
  uint64_t bestStep = 0;
  uint64_t validationsSince = 0; ///< none of which was less
};

struct CheckpointOptions {
  /// Newest checkpoints that stay; older ones are removed after a new one is
  /// complete. At least 1.
  uint64_t keep = 2;
  /// Largest size of one file of tensors; a tensor alone may be larger.
  uint64_t shardBytes = uint64_t(1) << 30;
  /// False in all processes of a run but the one with rank 0, which makes the
  /// folder and keeps other runs away from it.
  bool leads = true;
  /// Seconds between the signs by which a run shows in its folder that it
  /// lives. A run on another machine that gives none for three times as long
  /// has ended.
  double beatSeconds = 5;
};

/// The checkpoint folder of a run. Held by one run at a time. One that was made
/// for the run and got no checkpoint goes with it.
class CheckpointFolder {
public:
  ~CheckpointFolder();
  CheckpointFolder(const CheckpointFolder &) = delete;
  CheckpointFolder &operator=(const CheckpointFolder &) = delete;

  /// Makes the folder if it is not there, checks that it can be written to, and
  /// takes hold of it. Errors have ExitStorage, ExitFailed if another run holds
  /// it, on this machine or another. Waits some beats where a run of another
  /// machine left its mark.
  static Status open(const std::string &path, const CheckpointOptions &options,
                     std::unique_ptr<CheckpointFolder> &result);

  const std::string &path() const { return folder; }
  /// A file that `leads` keeps in the folder as long as it holds it: processes
  /// that find it there write into the same folder. Empty in the others.
  const std::string &mark() const { return markName; }
  const CheckpointOptions &options() const { return settings; }
  /// Throws Error if another run has taken the folder, as this one gave no sign
  /// of life for too long.
  void checkHeld() const;
  /// Steps of the complete checkpoints, ascending.
  std::vector<uint64_t> steps() const;
  /// The folder of the newest checkpoint, if there is one.
  std::optional<std::string> newest() const;
  /// The folder of one step's checkpoint.
  std::string stepFolder(uint64_t step) const;

private:
  class Lease;

  CheckpointFolder();
  std::string folder, markName;
  std::vector<std::string> made; ///< folders that were not there before
  CheckpointOptions settings;
  int descriptor = -1;
  std::unique_ptr<Lease> lease; ///< behind the mark
};

/// Steps of the complete checkpoints in a folder, ascending; none if it is not
/// there.
std::vector<uint64_t> checkpointSteps(const std::string &folder);
/// The folder of one step's checkpoint in such a folder.
std::string checkpointPath(const std::string &folder, uint64_t step);

/// Reads a whole checkpoint and compares it with its checksums. What is damaged
/// has exit code 2.
Status verifyCheckpoint(const std::string &checkpoint);
/// Renames a checkpoint (`step-00000100.damaged`), so that no run takes it for
/// one. Those that were set aside before go.
Status setCheckpointAside(const std::string &checkpoint);

/// Reads and checks what a checkpoint (`step-...`) says besides its tensors. A
/// damaged one has exit code 2.
Status readTrainingState(const std::string &checkpoint, TrainingState &state);

/// The files that the weights at a path are: a safetensors file, or of a folder
/// the files of that kind and their JSON, by name.
std::vector<std::string> weightFiles(const std::string &path);

/// Returns a text that tells the weights at a path (see weightFiles) from
/// others: how many files and bytes there are, and a hash of the names and
/// sizes of all and of the first and last 64 KiB of each. What is not there has
/// exit code 2.
Status identifyWeights(const std::string &path, std::string &identity);

} // namespace grt

#endif // GRT_CHECKPOINT_H
