//===- outputs.h - Trying outputs before the work -------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A trial of the files and folders that a tool will write when its work is
// done: that it may write them shows before the work, not after it.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_OUTPUTS_H
#define GRT_OUTPUTS_H

#include "grt/session.h"

#include <cstdint>
#include <span>
#include <string>

namespace grt {

struct Output {
  enum Kind {
    Stream, ///< a file that is written in its place
    Whole,  ///< a file that is written beside its place and renamed
    Folder  ///< a folder, made with its parents, and files in it
  };
  std::string option; ///< begins messages: "--save"
  std::string path;
  Kind kind = Stream;
  /// Bytes that it will take of the disk, and those of its largest file; 0:
  /// unknown.
  uint64_t bytes = 0, largestFile = 0;
};

/// A file that the work reads.
struct Input {
  std::string option; ///< as messages name it: "--data"
  std::string path;
};

/// Refuses files that would be written over one of `inputs` or over each other.
/// Then creates every output's first file and removes it again, with the
/// folders made on the way: nothing is left behind, and what is there is not
/// changed. Then compares what the outputs of one file system take together
/// with its free space, and the largest file with the process's limit. The
/// first output that cannot be is the error: ExitInvalid where the path is
/// wrong or taken, ExitStorage where space is short or the storage fails.
Status tryOutputs(std::span<const Output> outputs,
                  std::span<const Input> inputs = {});

} // namespace grt

#endif // GRT_OUTPUTS_H
