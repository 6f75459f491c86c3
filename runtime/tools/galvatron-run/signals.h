//===- signals.h - Ending a run from outside ------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_RUN_SIGNALS_H
#define GALVATRON_RUN_SIGNALS_H

/// From now on the first SIGINT or SIGTERM is only noted; a second one ends the
/// process as usual. A file that grows over the process's limit becomes an
/// error of the write instead of a signal.
void catchSignals();

/// The name of the signal that asks the run to end, or null.
const char *endRequested();

#endif // GALVATRON_RUN_SIGNALS_H
