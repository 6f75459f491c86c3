//===- restarts.h - A run that is started again after a failure -*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_RUN_RESTARTS_H
#define GALVATRON_RUN_RESTARTS_H

#include "children.h"
#include "options.h"

#include <map>
#include <string>

/// The programs of --elastic by the number of their ranks, all of them fewer
/// than those of the run's own program.
using ElasticPrograms = std::map<int64_t, std::string>;
/// Looks for them; none without --elastic. Errors: the folder has none, or two
/// for one number.
grt::Status findElasticPrograms(const Options &options,
                                ElasticPrograms &programs);

/// Eight ports, separated by commas, that all processes of a job try for each
/// of its attempts (GRT_RENDEZVOUS_PORT): other programs may have some of them.
std::string portsOfJob(const std::string &job);

/// The first host of a list as Slurm writes it: "node[03-07,9],b1" is node03.
std::string firstHost(const std::string &list);

/// The facts that an attempt of a run has of those before it.
struct Attempt {
  uint64_t number = 0; ///< restarts until now
  /// Batches of data that it leaves out behind the checkpoint: those before met
  /// values there that are not finite.
  uint64_t skipBatches = 0;
};

/// The decision behind the end of an attempt.
struct RestartDecision {
  bool again = false;
  double waitSeconds = 0;
  uint64_t skipBatches = 0;
  const char *why = ""; ///< the class of the failure
};

/// Decides by the class of each failure; has no clock and no files.
class RestartPolicy {
public:
  explicit RestartPolicy(uint64_t most) : left(most) {}
  /// `step` is that of the newest checkpoint; 0: there is none.
  RestartDecision ended(const ChildEnd &end, uint64_t step);

private:
  uint64_t left;
  uint64_t lastStep = 0;
  uint64_t inPlace = 0;  ///< failures since the run last got on
  uint64_t numerics = 0; ///< of them, those of values that are not finite
};

/// Whether this process is an attempt that supervise() started; else it is the
/// one that starts them.
bool isAttempt();
/// Returns that attempt; number 0 outside of one.
Attempt currentAttempt();

/// Starts the same command line as attempts, one after the other, until one
/// ends well, by request or for a reason that another would meet too, or
/// --restarts are used up. Passes signals on. Returns the exit code.
int supervise(const Options &options, char **arguments);

#endif // GALVATRON_RUN_RESTARTS_H
