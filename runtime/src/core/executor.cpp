//===- executor.cpp - One rank of a running program -----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/executor.h"
#include "core/loader.h"

#include <utility>

namespace grt {

Rank::Rank(RunState &state, Communicator &communicator, Activity &activity,
           Recorder *recorder)
    : facts(state, communicator, activity, recorder), memories(facts),
      observer(facts, memories), inUse(facts, memories, observer),
      batch(facts, memories), inspector(facts, memories, observer, batch),
      calls(facts, memories, observer, batch, inUse, inspector),
      streams(memories), ties(memories, observer, inUse, streams),
      stepEnd(facts, memories, observer, batch, inUse,
              RankLoader::goesAhead(facts)),
      interpreter(facts, memories, observer, batch, inUse, calls, streams, ties,
                  stepEnd),
      graphs(memories, observer, batch, streams, interpreter, stepEnd) {}

//===----------------------------------------------------------------------===//
// A step
//===----------------------------------------------------------------------===//

void Rank::take(std::shared_ptr<const PassInput> pass) {
  observer.step = pass->step;
  inUse.tracks = pass->mode == GRT_MODE_TRAIN;
  batch.input = std::move(pass);
}

void Rank::beginStep() {
  batch.begin();
  interpreter.beginStep();
  stepEnd.results.updateLeftOut = false;
  facts.activity.setStep(observer.step);
  inUse.beginStep();
  observer.at(nullptr);
  observer.notePlace("batch and step block");
  batch.fillStep(0, observer.step, batch.input->batch->countedValues);
  batch.fillData(0, *batch.input->batch);
}

void Rank::train() {
  Recorder *recorder = facts.recorder;
  if (recorder) {
    recorder->setRecording(batch.input->recorded);
    recorder->beginStep(observer.step);
  }
  memories.device->measureWaits(batch.input->measuresWaits);
  stepEnd.results.stepKind = StepKind::Calls;
  if (recorder && recorder->isActive())
    stepEnd.results.stepKind = StepKind::Recorded;
  runStep();
  if (recorder)
    recorder->endStep();
  memories.device->measureWaits(false);
  inUse.lookAtHeap();
}

void Rank::runStep() {
  beginBatches();
  if (graphs.holdStep()) {
    stepEnd.results.stepKind = StepKind::Graphs;
    return graphs.train();
  }
  graphs.leave();
  // Only schedules that go on have a prologue and an end without a next batch.
  if (!batch.input->begun)
    interpreter.runPart(GRT_PART_PROLOGUE);
  if (batch.input->next || !facts.schedule().parts[GRT_PART_DRAIN].count)
    runSteadyParts();
  else
    interpreter.runPart(GRT_PART_DRAIN);
  interpreter.runPart(GRT_PART_STEP_END);
  streams.join();
  batch.turnTo(0);
  graphs.warm = true;
  interpreter.endStep();
}

void Rank::evaluate(bool firstMicroBatchOnly) {
  inspector.hits = 0;
  beginStep();
  graphs.leave();
  interpreter.runPart(GRT_PART_EVALUATE, firstMicroBatchOnly);
  streams.join();
  interpreter.endEvaluation();
  inUse.lookAtHeap();
}

void Rank::inspect() {
  inspector.begin();
  const bool tracked = std::exchange(inUse.tracks, false);
  beginStep();
  graphs.leave();
  do
    interpreter.runPart(GRT_PART_EVALUATE);
  while (toNextPart());
  inUse.tracks = tracked;
  inspector.end();
}

//===----------------------------------------------------------------------===//
// A step over several batches of the program. They go through forward and
// backward one after the other and add to the same gradients; norm and update
// follow once. Gradients are scaled by the tokens of all parts, and random
// numbers are keyed by the sample's number in all of them, so a step is that of
// a program compiled for the larger batch, but for the order of sums.
//===----------------------------------------------------------------------===//

void Rank::runSteadyParts() {
  do {
    // Gradients are summed over ranks once, behind the last part.
    batch.leavesSums = batch.part + 1 < batch.input->parts;
    interpreter.runPart(GRT_PART_STEADY);
  } while (toNextPart());
  batch.leavesSums = false;
}

bool Rank::toNextPart() {
  if (batch.part + 1 >= batch.input->parts)
    return false;
  // What is under way still reads the data of this part, and adds its loss.
  streams.join();
  stepEnd.fetch(/*withNorm=*/false);
  memories.device->waitForAll();
  batch.earlierLosses += stepEnd.fetchedLosses();
  ++batch.part;
  batch.fillData(0, *batch.input->batch);
  return true;
}

//===----------------------------------------------------------------------===//
// Steps whose gradients are late. A schedule that goes on (docs/2bw.md) begins
// with the next batch while it ends one: forward passes of the next batch use
// the newest weights W(t), what is left of batch t uses W(t-1), and the update
// makes W(t+1) of W(t). Newest parameters always lie in front, where
// checkpoints, ties and evaluations look; before an update makes them newer
// they are copied over those a version older, which nobody needs any more. What
// was begun of a batch is nothing but time: it can be given up at any moment
// and done again.
//===----------------------------------------------------------------------===//

void Rank::completeWeights() {
  if (!std::exchange(hasOlderWeights, true))
    interpreter.makeOlderWeights();
}

void Rank::beginBatches() {
  const PassInput &input = *batch.input;
  // The host writes where an earlier batch has been read.
  if (input.begun || input.next)
    memories.device->waitForAll();
  if (input.begun) {
    ++batch.since;
    stepEnd.results.updateLeftOut = false;
    interpreter.beginStep();
    facts.activity.setStep(input.step);
    // Hyperparameters may have changed since the batch was begun.
    batch.fillStep(0, input.step, input.batch->countedValues);
  } else {
    beginStep();
  }
  completeWeights();
  if (input.next) {
    batch.fillStep(1, input.step + 1, input.next->countedValues);
    batch.fillData(1, *input.next);
  }
}

//===----------------------------------------------------------------------===//
// Beside steps
//===----------------------------------------------------------------------===//

double Rank::takeWaits() {
  const double ofHost = facts.activity.takeWaited();
  if (!memories.device->hasClock())
    return ofHost;
  memories.device->waitForAll();
  return memories.device->takeWaits();
}

void Rank::finish() {
  memories.device->waitForAll();
  inUse.lookAtDevice();
}

void Rank::finishRecording() {
  memories.device->waitForAll();
  if (facts.recorder)
    facts.recorder->fetchDeviceTimes();
}

void Rank::addOverRanks(std::span<double> values) {
  facts.host.allReduce(*memories.everyone, values.data(), values.size(),
                       GRT_F64);
  inUse.lookAtHeap();
}

} // namespace grt
