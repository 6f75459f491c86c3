//===- executor.h - One rank of a running program -------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A rank and what it is made of: every part knows those above it in the class
// only. docs/architecture.md says what each does.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_EXECUTOR_H
#define GRT_CORE_EXECUTOR_H

#include "core/step_graphs.h"

namespace grt {

class Rank {
public:
  /// With a recorder, whose communicator and backend these are then too, steps
  /// can be recorded.
  Rank(RunState &state, Communicator &communicator, Activity &activity,
       Recorder *recorder = nullptr);
  Rank(const Rank &) = delete;
  Rank &operator=(const Rank &) = delete;

  /// Called once, on the rank's own thread: arena, groups, initial weights.
  void load();
  /// Ranks do not meet at the end of a step.
  bool goesAhead() const { return stepEnd.goesAhead; }
  /// What the next pass is of.
  void take(std::shared_ptr<const PassInput> pass);
  /// One training step. Where gradients are late it also does forward passes
  /// of the next batch, if there is one.
  void train();
  /// The newest weights were not made by the last step. Without an older
  /// version of them that is a copy.
  void changedWeights(bool olderToo) {
    hasOlderWeights = olderToo;
    stepEnd.forget();
  }
  /// The norm by which the next batch is clipped, where that is one batch late;
  /// negative: there is none. Between steps.
  double normOfLastStep() const { return stepEnd.normBefore; }
  void setNormOfLastStep(double norm) { stepEnd.normBefore = norm; }
  /// Makes older versions, where there are any, if they are not there.
  void completeWeights();
  /// What was begun with others and left for later is ended, so that newest
  /// weights are everywhere.
  void settle() { interpreter.takeTied(); }
  /// Forward passes of the whole batch, or of micro-batch 0 only.
  void evaluate(bool firstMicroBatchOnly);
  /// `told` is called with its loss as soon as it is known, where ranks go on
  /// without each other.
  void whenLossIsKnown(std::function<void(const LossSums &)> told) {
    stepEnd.lossIsKnown = std::move(told);
  }
  /// Returns when all that this rank was asked for is done.
  void finish();
  /// Seconds that the rank has waited for others since the last call: see
  /// RankWork.
  double takeWaits();
  /// Recorded events get the device's times.
  void finishRecording();
  /// Replaces `values` by their sum over all ranks; every rank calls it.
  void addOverRanks(std::span<double> values);

  /// Finds where the values of the last step ceased to be finite.
  void inspect();
  std::string describeNotFinite() const {
    return inspector.describeNotFinite();
  }

  bool hasLoss() const { return memories.hasLoss(); }
  const StepResults &results() const { return stepEnd.results; }

  int globalRank() const { return facts.self; }
  int localRank() const { return facts.local; }
  /// For what is in the host's memory.
  Communicator &peers() { return facts.host; }
  int roleIndex() const { return facts.roleNumber; }
  const Role &role() const { return *facts.role; }
  char *home(const Layer &layer) const { return memories.home(layer); }
  Device &access(const Layer &layer) const { return memories.access(layer); }
  /// Adds the samples of a batch that it reads, by datum; once it is loaded.
  void addSamplesRead(SamplesRead &samples) const {
    batch.addSamplesRead(samples);
  }
  RankMemory memoryUse() const { return inUse.figures(); }
  /// Of states that have their home on the host, bytes since loading.
  const RankSwaps &swapped() const { return memories.swaps.figures; }
  bool readLabels(int64_t microBatch, std::span<int32_t> labels) const {
    return batch.readLabels(microBatch, labels);
  }
  using Scores = Inspector::Scores;
  const Scores &scores() const { return inspector.scores; }
  uint64_t hits() const { return inspector.hits; }
  /// Holds sample 0 of every micro-batch and is the first of its TP group.
  bool isFirstOfLastLayer() const {
    return memories.hasLoss() && memories.layers.back().block == 0;
  }

  /// What the rank does outside its program, for the watchdog; `name` is the
  /// program's.
  void note(const char *what, const char *name) const {
    facts.activity.begin(what, name);
  }
  void advance() const { facts.activity.advance(); }
  // From any thread:
  bool hasFailed(std::string &message) const {
    return memories.hasFailed(message);
  }
  void abortDevice() const { memories.abortDevice(); }
  std::string collectivesLibrary() const {
    return memories.collectivesLibrary();
  }
  RankFlight flight() const { return observer.flight(); }
  void lookAtMarks() const { observer.lookAtMarks(); }
  int graphsPerStep() const { return graphs.perStep(); }
  const std::string &whyNotOneGraph() const { return graphs.whyNotOne; }

private:
  friend class RankLoader;

  /// Of a batch that was not begun.
  void beginStep();
  /// The same, or of one that was begun ahead; and of the next one, if there
  /// is one.
  void beginBatches();
  void runStep();
  /// Forward and backward of all parts of the batch.
  void runSteadyParts();
  /// Adds up the losses of a part and puts the data of the next one where it is
  /// read; false if there is none.
  bool toNextPart();

  RankFacts facts;
  RankMemories memories;
  Observer observer;
  MemoryInUse inUse;
  BatchInFlight batch;
  Inspector inspector;
  CallRunner calls;
  RankStreams streams;
  Ties ties;
  StepEnd stepEnd;
  Interpreter interpreter;
  StepGraphs graphs;
  bool hasOlderWeights = false;
};

} // namespace grt

#endif // GRT_CORE_EXECUTOR_H
