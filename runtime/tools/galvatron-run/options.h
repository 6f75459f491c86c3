//===- options.h - Command line of galvatron-run --------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_RUN_OPTIONS_H
#define GALVATRON_RUN_OPTIONS_H

#include "grt/checkpoint.h"
#include "grt/data.h"
#include "grt/session.h"
#include "sampling.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

struct Options {
  bool help = false, version = false;
  /// The program is described and not run.
  bool describe = false;
  /// "whole": so are all of its functions and tasks; "manifest": that alone.
  std::string described;
  /// `program` is a folder, whose programs are measured.
  bool measure = false;
  /// The options that were given, by name and as they were written; flags have
  /// no value.
  std::map<std::string, std::optional<std::string>> given;
  std::string program;
  grt::DataOptions data;
  /// The tokenizer of texts, and how they are cut into documents.
  std::string tokenizer, documents, textKey, endToken;
  /// Tokens of `data.corruption`, by their text or number; empty: by the names
  /// that tokenizers have for them.
  std::string maskToken, firstSentinel;
  /// The tokenizer's template stands around every sample.
  bool frameSamples = false;
  std::optional<uint64_t> steps;
  std::optional<int64_t> ranks;
  int threadsPerRank = 0;
  double timeout = 600;
  /// The settings by which several processes find and trust each other.
  std::string launchSecret, listen;
  grt::OnNan onNan = grt::OnNan::Stop;
  /// Folder of checkpoints; weights and adapters to start from.
  std::string checkpoint, init, adapters;
  bool merge = false; ///< --save adds adapters to the model
  grt::CheckpointOptions checkpoints;
  uint64_t checkpointEvery = 0;
  bool writeBehind = true;
  bool resume = false;
  /// Whether a mixture may go on in an order other than its checkpoint's.
  bool acceptNewOrder = false;
  /// The most attempts that follow a failure.
  std::optional<uint64_t> restarts;
  /// Programs for fewer ranks, which it then goes on with; empty: none.
  std::string elastic;
  /// Loss and perplexity over the data, no step.
  bool evaluate = false;
  /// The run ends by itself within so many seconds; 0: never.
  double maxSeconds = 0;
  /// Lines of steps; without it all, on a terminal one a second.
  std::optional<uint64_t> printEvery;
  uint64_t hostMemory = 0;
  bool coreDumps = false;
  /// Replicas are compared every so many steps; 0: never.
  uint64_t checkReplicas = 0;
  std::string save, log, summary, dumpGradients, trace;
  std::string report; ///< the page of the run
  /// The last steps of the run are recorded, for the trace and the summary.
  uint64_t traceSteps = 3;
  /// The file that the summary also goes to with --json; "-" is standard
  /// output.
  std::string json;
  std::optional<double> lr, minLr, eps, weightDecay, momentum, clipNorm;
  std::optional<std::pair<double, double>> betas;
  std::optional<uint64_t> warmupSteps, decaySteps, seed;
  std::optional<grt::Decay> decay;
  /// Batches of the program in a step.
  std::optional<uint64_t> accumulate;
  std::optional<std::vector<grt::ParameterGroup>> groups;
  /// Steps with a larger gradient norm are left out, so many in a row.
  std::optional<double> skipNorm;
  std::optional<uint64_t> skipLimit;
  /// Lines begin with the time.
  bool timestamps = false;
  bool decayAll = false;
  bool checkStreams = false;
  bool graphs = true;
  /// Ranks may be on one GPU.
  bool shareGpus = false;
  /// Ranks of one node of the plan may be on several hosts, with GPUs too.
  bool anyPlacement = false;
  /// Links are measured before a run on GPUs.
  bool linkCheck = true;
  /// Number of this process's GPU among the machine's, once that is known: no
  /// option; -1: there is none.
  int card = -1;
  std::string gpu; ///< what it is, and its driver; empty: unknown
  /// Looks at the machines and runs nothing.
  bool check = false;
  /// The file in which a failed run leaves what its ranks did last; empty:
  /// none.
  std::string flight = "galvatron-flight.json";
  bool flightGiven = false;
  uint64_t validateEvery = 0, validationBatches = 0;
  /// Data that are validated on, in place of a part of those trained on.
  std::vector<grt::DataFiles> validationFiles;
  /// The model of the least validation loss is written there; empty: nowhere.
  std::string saveBest;
  /// Validations in a row without a lesser loss that end a run; 0: none do.
  uint64_t patience = 0;
  std::optional<std::string> generate;
  std::string prompts;          ///< a file of texts to be continued
  std::string generationConfig; ///< a file; empty: that of --init, if any
  uint64_t tokens = 64;
  Sampling sampling;

  /// Texts are to be continued.
  bool generates() const { return generate || !prompts.empty(); }
  bool wantsRecording() const {
    return traceSteps > 0 && (!trace.empty() || !summary.empty() ||
                              !json.empty() || !report.empty());
  }
};

/// Parses the arguments after the program's name. Errors have exit code 2.
grt::Status parseOptions(int count, char **arguments, Options &options);

/// Every option's name, as it is parsed.
std::vector<std::string> parsedOptions();

/// The text of --help, and the names of the options in it (help.cpp).
std::string helpText();
std::vector<std::string> helpedOptions();

#endif // GALVATRON_RUN_OPTIONS_H
