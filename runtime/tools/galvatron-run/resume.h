//===- resume.h - Where a run begins --------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_RUN_RESUME_H
#define GALVATRON_RUN_RESUME_H

#include "grt/processes.h"
#include "options.h"

#include <memory>
#include <optional>
#include <string>

/// The state that a run begins with, and where it comes from.
struct Beginning {
  grt::TrainingState state;
  std::unique_ptr<grt::CheckpointFolder> folder; ///< null without --checkpoint
  std::optional<std::string> checkpoint;         ///< resumed from
  std::vector<std::string> notes;                ///< to be told, in order
};

/// Opens the checkpoint folder and makes the state of a new run, or that of the
/// newest checkpoint with what the options change. Process 0 (`processes`, or
/// null) says for all which checkpoint that is: collective. Call before the
/// data is opened: its seed is part of the state.
grt::Status begin(const Options &options, const grt::Program &program,
                  grt::Processes *processes, Beginning &beginning);

/// Returns the status for a checkpoint to resume that cannot be read: names the
/// newest one before it that is whole, if this one is not.
grt::Status offerOlder(const Beginning &beginning, grt::Status failed);

/// Puts the data into the state of a new run, or compares it with the
/// checkpoint's: a position means nothing in other data.
grt::Status checkData(const Options &options, const grt::Dataset &data,
                      int64_t sequenceLength, Beginning &beginning);

/// Puts the data that validation has of its own (null: none) into the state.
/// The least loss of a checkpoint that was validated on others is forgotten.
void forgetOtherValidation(const grt::Dataset *held, Beginning &beginning);

#endif // GALVATRON_RUN_RESUME_H
