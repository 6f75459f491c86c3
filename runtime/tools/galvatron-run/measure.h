//===- measure.h - Plans measured beside each other -------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// `galvatron-run --measure FOLDER`: a round of steps of every program in the
// folder on data that is made up, under the launcher that training will have,
// and which one is the fastest. What is known is in FOLDER/measured.json after
// every program, so that a measurement that was ended goes on where it stopped;
// one that is complete gets another round.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_RUN_MEASURE_H
#define GALVATRON_RUN_MEASURE_H

#include "grt/processes.h"
#include "options.h"

#include <memory>

/// Measures the programs in the folder `options.program`. `exitCode` is that of
/// a measurement without a failure: 0, or that of the signal that ended it.
grt::Status measure(const Options &options,
                    const std::shared_ptr<grt::Processes> &processes,
                    int &exitCode);

/// Spearman's rank correlation of two lists of one length, of at least two; in
/// [-1, 1], equal values have their mean rank.
double rankCorrelation(const std::vector<double> &a,
                       const std::vector<double> &b);

#endif // GALVATRON_RUN_MEASURE_H
