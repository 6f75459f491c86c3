//===- session_implementation.h - What a session is made of ---------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// For the files that implement Session: session.cpp runs steps on the threads
// of the ranks, session_tensors.cpp moves whole tensors between ranks, callers
// and files.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_SESSION_SESSION_IMPLEMENTATION_H
#define GRT_SESSION_SESSION_IMPLEMENTATION_H

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/gather.h"
#include "comm/world.h"
#include "core/executor.h"
#include "core/flight.h"
#include "core/host_memory.h"
#include "core/trace_report.h"
#include "grt/session.h"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <optional>
#include <thread>

namespace grt {

struct Session::Implementation {
  Implementation(std::shared_ptr<const Program> program,
                 const SessionOptions &options);
  ~Implementation();

  /// Runs `body` on every rank's thread and waits until all commands have
  /// ended. The first error of any rank wakes all others and is thrown here. Of
  /// a command that may wait for storage (`mayStand`) nobody expects progress.
  void runAll(std::function<void(Rank &)> body, bool mayStand = false);
  /// The same with what is set as the pass's input.
  void runPass(const std::function<void(Rank &)> &body);
  /// Begins a step and returns the sums of its losses as soon as they are
  /// known; other ranks may go on with it. Where RunState::ahead.
  LossSums runStepAhead();
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
  void throwFirst(const std::optional<Error> &problem);
  /// Whether this process has rank 0, which does what is to be done once.
  bool leads() const { return ranks.front()->globalRank() == 0; }
  bool isAlone() const { return world.localCount() == world.size(); }
  void load(CheckpointReader reader);
  void serve(int rank);
  /// Throws if a rank has failed before: another may still be at work.
  void checkUsable();
  void stop();
  /// Waits until all commands have ended, before the session does.
  void end();
  // What follows is called with `mutex` held by `lock`.
  /// Throws the error, if there is one; the second time it says so.
  void throwError();
  /// One more command for every rank.
  void ask(std::function<void(Rank &)> body, bool mayStand = false);
  /// How many commands there have been, ended or not.
  uint64_t asked() const { return allEnded + commands.size(); }
  /// Waits until all commands have ended, and hears of failures elsewhere.
  void settle(std::unique_lock<std::mutex> &lock, bool mayStand = false);
  /// Waits. If the watchdog finds a rank stuck, the others get some seconds to
  /// end, then it is abandoned.
  void wait(std::unique_lock<std::mutex> &lock,
            const std::function<bool()> &finished, bool mayStand = false);
  void record(int exitCode, const std::string &message);
  /// Asks the devices how far they are, for at most a second: what does not
  /// answer is not asked again, and is left behind.
  void lookAtMarks();
  std::vector<RankFlight> flights() const;
  /// What the ranks' collectives say of why they stand still, for the end of a
  /// message.
  std::string compareCalls();
  /// Takes down what the ranks did last, the first time; empty later.
  std::string takeFlight(std::string reason);
  /// Begins to write it where the options say.
  void writeFlight(std::string text);
  /// Waits for it as long as storage that works may take.
  void awaitFlight();
  void abortDevices();
  /// What a device was asked to do may fail, or wait for a process that is
  /// gone, while the rank's thread waits for it.
  void lookAtDevices();
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
  /// The samples of the batch become these tokens, in generate mode.
  void setRowTokens(std::span<const RowToken> tokens);
  /// Brings the logits of the scored rows together, in all processes.
  void shareScores(std::vector<double> &result, size_t rows);
  /// All samples of the batch become `tokens`, in generate mode.
  void setPrompt(std::span<const int32_t> tokens, const EncoderPrompt *encoder);
  /// Gives the tokens that one process has to all; empty elsewhere.
  void sharePrediction(std::vector<int32_t> &tokens, size_t count);
  /// The values of every rank of every process, in the order of ranks; `mine`
  /// gives those of a rank.
  std::vector<double>
  gatherNumbers(size_t each, const std::function<void(Rank &, double *)> &mine);
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
  void mergeAdapter(int parameter, std::vector<char> &weight);
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
  /// The backend as recorded ranks see it, and a recorder per rank; empty
  /// without a trace.
  BackendTable traced;
  /// What the host does at home beside a device; null without one.
  std::unique_ptr<BackendHandle> homeBackend;
  std::vector<std::unique_ptr<Recorder>> recorders;
  RunState state;
  std::vector<std::string> notes;
  /// Of the next pass.
  PassInput set;
  std::shared_ptr<World> owner; ///< of `world`
  World &world;
  std::vector<std::unique_ptr<Activity>> activities;
  std::vector<std::unique_ptr<Communicator>> communicators;
  std::vector<std::unique_ptr<Rank>> ranks;
  SamplesRead samplesRead;
  bool gradientsKnown = false;
  uint32_t requestsHeard = 0; ///< of all processes, with the last step

  std::mutex mutex;
  std::condition_variable wake, done;
  /// Those that some rank has not ended. Kept here, as a rank that is stuck may
  /// use its own for ever.
  std::deque<std::function<void(Rank &)>> commands;
  std::vector<uint64_t> ended; ///< how many commands, by local rank
  /// By local rank: behind how many commands its loss is `second`.
  std::vector<std::pair<uint64_t, LossSums>> lossesKnown;
  std::vector<RankMemory> memories; ///< behind the last of them
  uint64_t allEnded = 0;
  bool stopping = false;
  /// A rank did not come back; its thread still uses this object.
  bool abandoned = false;
  std::unique_ptr<Error> error;
  bool errorTold = false;
  std::atomic<bool> marksHang = false;
  std::mutex flightMutex; ///< of the next two; taken before `mutex`
  bool flightTaken = false;
  FlightFile flightFile;
  std::vector<std::thread> threads;

  bool copiesFit = false;
  std::vector<PieceCopies> copies; ///< by local rank
  std::unique_ptr<CheckpointWriter> behind;
  /// Of the thread that writes for `behind`: seconds. Ends before the writer
  /// and what it reads do.
  std::future<double> written;
};

} // namespace grt

#endif // GRT_SESSION_SESSION_IMPLEMENTATION_H
