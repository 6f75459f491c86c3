//===- launch.h - Parts of joining processes ------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_COMM_LAUNCH_H
#define GRT_COMM_LAUNCH_H

#include "comm/transport.h"
#include "grt/launcher.h"

#include <string>
#include <vector>

namespace grt {

struct LaunchOptions {
  std::string folder;     ///< of plug-ins
  std::string secretFile; ///< empty: GALVATRON_LAUNCH_SECRET
  std::string listen;     ///< empty: GRT_LISTEN
  bool restarts = false;  ///< these two as in ProcessOptions
  std::vector<int> smaller;
};

/// readLaunch() of this process's environment. Throws Error (2).
Launch launchOfEnvironment();

/// The number that the variable `name` has: digits only, from `least` to
/// `most`; `text` is null where it is not set. Throws Error (2).
int wholeNumber(const std::string &name, const char *text, int least, int most);

/// Joins the processes of the launcher, through the plug-in for MPI or, where
/// MPI is not theirs, over TCP; once per process. Null if no
/// launcher of several processes started this one. Throws Error.
Transport *openTransport(const LaunchOptions &options);

/// Collective: the first rank of every process, each with `own` ranks of its
/// own, and the number of all at the end.
std::vector<int> gatherRankCounts(Transport &transport, int own);

} // namespace grt

#endif // GRT_COMM_LAUNCH_H
