//===- agreement.h - What the processes of a run have in common -----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A statement is what one process knows of the run: the terms it would work
// under, or why it cannot. Digests go to process 0 along a tree (tree.h), in
// which each process compares those below it with its own; only where some
// differ, or all have failed, are whole statements collected, compared, and the
// verdict sent to all. No process goes on with memory layouts, data or options
// that another does not share.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_COMM_AGREEMENT_H
#define GRT_COMM_AGREEMENT_H

#include "comm/tree.h"
#include "grt/processes.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace grt {

/// The terms of one process, or the failure that keeps it from having them.
struct Statement {
  Status status;
  std::vector<Term> terms;
};

/// The statement as bytes, and back; nothing for bytes that are none.
std::string encode(const Statement &statement);
std::optional<Statement> decodeStatement(std::string_view bytes);

/// Returns the verdict on the statements of all processes, given in their
/// order: success; the failures, with the exit code of the first; or exit code
/// 2 and the processes that differ, with the terms that they differ in.
Status verdictOf(const std::vector<Statement> &statements);

/// "process 0", "processes 1, 3 to 5"; `numbers` ascend.
std::string processList(const std::vector<int> &numbers);

/// The verdict on the statements of all processes, the same at each. Collective
/// over the processes; messages have `tag`.
Status agree(Transport &transport, int tag, const WaitForAll &wait,
             const Statement &own);

/// `text` becomes that of process 0. Collective over the processes.
void share(Transport &transport, int tag, const WaitForAll &wait,
           std::string &text);

/// Version and protocols of the build that a process runs. Its size never
/// changes: it is compared before anything else that builds could see
/// differently is exchanged.
struct Build {
  char version[48] = "";
  uint32_t abi = 0;
  /// Version of what processes tell each other outside the program's
  /// collectives.
  uint32_t protocol = 0;
  char reserved[8] = "";
};
static_assert(sizeof(Build) == 64);

/// The build that this code is part of.
Build ownBuild();

/// Throws Error (2) on all processes if their builds differ. Collective, before
/// anyone watches over the processes. Where they do not differ, process 0's
/// goes to all and a byte of each comes back, along the transport's trees.
void compareBuilds(Transport &transport, const Build &own);

} // namespace grt

#endif // GRT_COMM_AGREEMENT_H
