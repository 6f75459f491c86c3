//===- session_implementation.h - What a session is made of ---------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// For the files that implement Session: session.cpp runs steps on the threads
// of the ranks (rank_threads.h), session_batches.cpp and session_predict.cpp
// set what they are of, session_tensors.cpp moves whole tensors between ranks,
// callers and files.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_SESSION_SESSION_IMPLEMENTATION_H
#define GRT_SESSION_SESSION_IMPLEMENTATION_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/gather.h"
#include "comm/rank_messages.h"
#include "core/host_memory.h"
#include "core/trace_report.h"
#include "session/rank_threads.h"

#include <functional>
#include <future>
#include <optional>

namespace grt {

/// A checkpoint that is written beside steps, from copies.
class WrittenBehind {
public:
  /// Whether the machines have memory for it; all do the same.
  bool fits = false;
  /// By local rank, of the pieces that it writes.
  std::vector<PieceCopies> copies;

  bool wasBegun() const { return writer != nullptr; }
  void begin(std::unique_ptr<CheckpointWriter> of);
  bool isWriting() const;
  /// Waits for it; how long it took in seconds. Throws what went wrong.
  std::unique_ptr<CheckpointWriter> end(double &seconds);

private:
  std::unique_ptr<CheckpointWriter> writer;
  /// Of the thread that writes: seconds. Ends before the writer and what it
  /// reads do.
  std::future<double> written;
};

struct Session::Implementation {
  Implementation(std::shared_ptr<const Program> program,
                 const SessionOptions &options);

  /// RankThreads::run.
  void runAll(RankThreads::Body body, bool mayStand = false) {
    threads->run(std::move(body), mayStand);
  }
  /// The same with what is set as the pass's input.
  void runPass(const std::function<void(Rank &)> &body);
  /// The sums of a step's losses; the rest of its numbers are put into
  /// `result`.
  LossSums runStep(StepResult &result);
  /// Throws where a loss or a norm is not finite and steps are to end then.
  void checkFinite(double loss, double norm);
  /// What the run's options say of all ranks.
  void setUp(const SessionOptions &options);
  /// Throws where ranks of a node of the plan are on several hosts and shall
  /// not be.
  void checkHosts();
  /// Of the threads of kernels; once in a process.
  void noteVariables();
  /// Collective; throws where ranks are on one device that shall not be.
  void checkDevices();
  /// Refuses arenas that the machines or their control groups have no room for.
  void checkMemory();
  /// Runs `body` here, where it may fail, and lets the ranks of all processes
  /// agree that none of them did: what follows finds its work done. Where one
  /// did, all throw the error of the first such process; the ranks go on.
  void together(const std::function<void()> &body);
  /// Throws the problem of the first process that has one; all make the call.
  /// Of processes that come late nobody expects progress (`mayStand`).
  void throwFirst(const std::optional<Error> &problem, bool mayStand = false);
  /// Whether this process has rank 0, which does what is to be done once.
  bool leads() const { return local->ranks.front()->globalRank() == 0; }
  bool isAlone() const { return world.localCount() == world.size(); }
  /// Ranks do not meet at the end of a step; the same on all.
  bool goesAhead() const { return local->ranks.front()->goesAhead(); }
  void load(CheckpointReader reader);
  void setBatch(const DataBatch &batch, std::optional<uint64_t> counted);
  void setNextBatch(const DataBatch &batch, std::optional<uint64_t> counted);
  /// Checks a batch and copies what this process's ranks read of it; it is
  /// `parts` of the program's batches.
  std::shared_ptr<const GlobalBatch> copyBatch(const DataBatch &batch,
                                               std::optional<uint64_t> counted,
                                               uint64_t &parts);
  /// The batch that a step has begun with becomes the one that is set.
  void toNextBatch();
  /// Refuses what cannot be had where updates do not wait for all ranks.
  void checkLate() const;
  void findSamplesRead();
  /// Of a datum in a batch of so many of the program's.
  template <typename Visit>
  void forEachRangeRead(size_t datum, uint64_t parts, Visit visit) {
    for (uint64_t part = 0; part < parts; ++part)
      for (SampleRange range : samplesRead[datum])
        visit(
            SampleRange{range.first + int64_t(part) * program->manifest().batch,
                        range.count});
  }
  /// The samples of the batch become these tokens, in generate mode, and the
  /// sources of texts that begin.
  void setRowTokens(std::span<const RowToken> tokens,
                    std::span<const RowSource> sources);
  /// Keeps the numbers of tokens of sources, by row.
  void takeSources(std::span<const RowSource> sources);
  /// Returns the values of a datum for these tokens and sources.
  std::vector<char> valuesOf(const Datum &datum,
                             std::span<const RowToken> tokens,
                             std::span<const RowSource> sources) const;
  /// Brings the logits of the scored rows together, in all processes.
  void shareScores(std::vector<double> &result, size_t rows);
  /// All samples of the batch become `tokens`, in generate mode.
  void setPrompt(std::span<const int32_t> tokens, const EncoderPrompt *encoder);
  /// Gives the tokens that one process has to all; empty elsewhere.
  void sharePrediction(std::vector<int32_t> &tokens, size_t count);
  /// The messages of every rank of every process; `mine` writes the values of a
  /// rank, which are zeros before.
  template <typename T>
  RankMessages<T> gather(MessageKind kind, size_t count,
                         const std::function<void(Rank &, std::span<T>)> &mine,
                         bool mayStand = false);
  template <typename T>
  RankMessages<T> gather(MessageKind kind,
                         const std::function<T(Rank &)> &mine) {
    return gather<T>(
        kind, 1, [&](Rank &rank, std::span<T> to) { to.front() = mine(rank); });
  }
  /// What `mine` says of every rank of every process, in their order; empty if
  /// the run has failed.
  template <typename T>
  std::vector<T> gatherFigures(MessageKind kind,
                               const std::function<T(Rank &)> &mine) {
    std::vector<T> figures;
    if (!guarded([&] { figures = gather<T>(kind, mine).values(); }))
      figures.clear();
    return figures;
  }
  /// The whole of one parameter (or its gradient or state), at the process
  /// that has rank 0; all processes call it.
  std::vector<char> gatherTensor(int parameter, Held kind);
  /// The tensor of files, of `bytes` bytes, that the parameters are the parts
  /// of; or one that is a parameter. Only the leader has it.
  std::vector<char> gatherStored(std::span<const int> parameters, Held kind,
                                 uint64_t bytes);
  /// One tensor, at the process that has rank 0.
  void collectOne(int index, Held kind, Tensor &tensor);
  void collect(Held kind, const std::string &suffix, TensorMap &result);
  /// Fails where there are no gradients to be had.
  void checkGradients() const;
  /// Writes a file of text, and its folder if there is none.
  void writeText(const std::string &directory, const char *name,
                 const std::string &text);
  /// What of a model with adapters is written.
  enum class Written {
    All,      ///< every parameter as it is
    Adapters, ///< theirs
    Merged    ///< the others, with what adapters add
  };
  void writeTensors(const std::string &path, Held kind,
                    Written what = Written::All);
  /// Adds to a frozen weight, of `heldType(Held::Frozen)`, what its adapter
  /// adds to the product; all processes call it.
  void mergeAdapter(const std::string &name, std::vector<char> &weight);
  TraceReport report();
  /// Whether the ranks' needs and their copies for checkpoints fit together.
  void checkCopies(std::vector<RankNeed> needs,
                   const std::optional<MemoryBound> &machine,
                   const std::optional<MemoryBound> &group);
  /// A checkpoint of the state that `training` describes, with its files open.
  std::unique_ptr<CheckpointWriter>
  openCheckpoint(const CheckpointFolder &folder, const TrainingState &training);
  /// Returns why an old checkpoint could not be removed.
  std::string commit(CheckpointWriter &writer);

  std::shared_ptr<const Program> program;
  BackendHandle backend;
  /// The backend as recorded ranks see it.
  BackendTable traced;
  /// What the host does at home beside a device; null without one.
  std::unique_ptr<BackendHandle> homeBackend;
  RunState state;
  std::vector<std::string> notes;
  /// Of the next pass.
  PassInput set;
  /// By row of the cache, tokens of the source of its text; 0: it has none yet.
  std::vector<int32_t> sourceLengths;
  std::shared_ptr<World> owner; ///< of `world`
  World &world;
  SamplesRead samplesRead;
  bool gradientsKnown = false;
  uint32_t requestsHeard = 0; ///< of all processes, with the last step
  /// Made behind all that the constructor checks; each uses those before it.
  std::unique_ptr<ProcessRanks> local;
  std::unique_ptr<FlightRecord> flight;
  std::unique_ptr<RankThreads> threads;
  WrittenBehind behind;
};

template <typename T>
RankMessages<T> Session::Implementation::gather(
    MessageKind kind, size_t count,
    const std::function<void(Rank &, std::span<T>)> &mine, bool mayStand) {
  // Each rank receives a copy of its own; nothing is taken on its thread.
  std::vector<RankMessages<T>> messages(
      local->ranks.size(), RankMessages<T>(kind, count, size_t(world.size())));
  runAll(
      [&](Rank &rank) {
        RankMessages<T> &own =
            messages[size_t(rank.globalRank() - world.firstLocal())];
        mine(rank, own.mine());
        own.gather(rank.peers());
      },
      mayStand);
  return std::move(messages.front());
}

} // namespace grt

#endif // GRT_SESSION_SESSION_IMPLEMENTATION_H
