//===- session.h - Running a compiled program in this process -------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The C++ interface of the runtime: load a program (`.gvx`), make a session of
// it (ranks are threads of this process, each with its own arena; processes.h
// spreads them over several), feed it batches, step it, look at what it holds.
// `galvatron-run` and the numeric twins stand on it. Nothing is global:
// sessions are independent of each other.
//
// No exception leaves these functions; whatever can fail returns a `Status`.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_SESSION_H
#define GRT_SESSION_H

#include "grt/abi.h"
#include "grt/backend.h"
#include "grt/datum.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace grt {

/// Exit code of a tool (docs/operations.md). Trying again may help where the
/// code is neither 0 nor 2; a signal that ended a run gives 128 and its number.
enum ExitCode : int {
  ExitDone = 0,
  ExitFailed = 1,   ///< otherwise
  ExitInvalid = 2,  ///< wrong usage or invalid input, found before the work
  ExitNumerics = 3, ///< a loss or gradient norm that is not finite
  ExitPeerLost = 4, ///< a process is gone, or a rank makes no progress
  ExitStorage = 5,  ///< a file cannot be written, or no longer be read
  ExitMemory = 6,   ///< memory that is needed cannot be had
};

/// Success, or a message with the exit code a tool should end with.
class [[nodiscard]] Status {
public:
  Status() = default;
  Status(int exitCode, std::string message)
      : code(exitCode), text(std::move(message)) {}

  explicit operator bool() const { return code == 0; }
  bool ok() const { return code == 0; }
  /// The status as an ExitCode.
  int exitCode() const { return code; }
  const std::string &message() const { return text; }

private:
  int code = 0;
  std::string text;
};

/// The runtime's version, "0.1.0".
const char *version();

/// Makes a fatal signal end the process with exit code 1 and a message that
/// begins with `prefix` and says which rank did what; for tools. With
/// `coreDumps` the signal then ends it as usual, with a core as large as the
/// limits allow.
void reportFatalSignals(const char *prefix, bool coreDumps = false);

/// Facts that a tool prints of a program before it runs it.
struct ProgramFacts {
  std::string model;       ///< its `model_type`; empty: unknown
  std::string dtype;       ///< "f32"
  uint64_t parameters = 0; ///< elements of all that are saved
  uint64_t trained = 0;    ///< of these, elements that are trained
  int64_t adapterRank = 0; ///< of low-rank adapters; 0: there are none
  /// The strategies of every stage, equal neighbours once: "2 stages (1f1b, 4
  /// micro-batches): tp2.sdp2 x5 | sdp4 x3".
  std::string plan;
  /// Predicted times and peak FLOP/s are a built-in cluster's, not measured.
  bool nominal = false;
  /// Bytes of a saved model; of a checkpoint and of its largest file.
  uint64_t modelBytes = 0, checkpointBytes = 0, largestFileBytes = 0;
};

struct Manifest;
struct TrainingState;
class CheckpointFolder;
class ProgramFile;
class World;

/// A loaded program: its checked tables and manifest. Immutable; any number of
/// sessions may share it, also at the same time.
class Program {
public:
  ~Program();
  Program(const Program &) = delete;
  Program &operator=(const Program &) = delete;

  /// Reads and checks a `.gvx`: its length, SHA-256, ABI, tables and manifest.
  /// A damaged file is an error with exit code 2, never a fault. The file is
  /// read once; what becomes of it later does not matter.
  static Status loadFile(const std::string &path,
                         std::shared_ptr<const Program> &result);
  /// Loads a program from the bytes of a `.gvx`; `name` is used in messages.
  static Status loadMemory(std::string_view bytes, const std::string &name,
                           std::shared_ptr<const Program> &result);
  const Manifest &manifest() const { return *parsed; }
  const ProgramFile &file() const { return *tables; }
  /// JSON, as docs/manifest.md has it.
  std::string_view manifestText() const;
  const std::string &name() const { return label; }
  /// The SHA-256 of its header, as 64 hexadecimal digits: of all that follows
  /// the header.
  const std::string &hash() const { return digest; }

  /// Facts of the manifest that tools need.
  int64_t worldSize() const;
  /// The node of the plan's cluster that each rank is on; empty: the program
  /// does not say.
  std::vector<int> nodes() const;
  int64_t batchSize() const;
  const std::vector<Datum> &data() const;
  /// Number of batches by which gradients are late: 0, or 1 under schedule 2bw.
  int64_t gradientDelay() const;
  /// True if chunks are updated before the gradients of all are known, so that
  /// no update can be left out.
  bool updatesJustInTime() const;
  /// True if gradients of chunks that are updated on the device never leave it,
  /// so that Session::gradients() has none.
  bool updatesOnDevice() const;
  /// Tokens of a sample, and their bound; 0 if the model reads none.
  int64_t sequenceLength() const;
  int64_t vocabularySize() const;
  /// True if the labels are tokens that follow those that a sample has up to
  /// each (a causal model's own, or a decoder's behind an encoder), so that
  /// Session::predict() can ask for them.
  bool predictsTokens() const;
  /// The layer of the loss, if its ranks have blocks of the rows, so that none
  /// can tell the tokens of all positions; else "".
  std::string dividedPredictions() const;
  /// Tokens that the decoder behind an encoder reads; 0 if there is none.
  int64_t decoderLength() const;
  /// Texts whose keys and values the program keeps, for Session::decode(), and
  /// tokens that each may have; 0 for programs that keep none.
  int64_t cacheRows() const;
  int64_t cacheLength() const;
  /// Whether an encoder reads a source of each of these texts, of at most
  /// sequenceLength() tokens.
  bool cachesSources() const;
  double predictedStepMilliseconds() const;
  /// Model FLOPs of forward and backward per sample, without recomputation.
  double flopsPerSample() const;
  /// Peak FLOP/s of one device as the cluster file gives it; 0 if unknown.
  double peakFlops() const;
  bool clipsGradients() const;
  ProgramFacts facts() const;
  /// Model, plan, memory and version, as text or as JSON; with `whole` also
  /// every function with its calls and every role with its tasks.
  std::string describe(bool asJson, bool whole = false) const;
  /// "adamw", "adam" or "sgd".
  const std::string &optimizer() const;

private:
  class Bytes;
  Program();
  static std::shared_ptr<const Program> load(std::unique_ptr<const Bytes> bytes,
                                             const std::string &name);

  std::unique_ptr<const Bytes> bytes;
  std::unique_ptr<const ProgramFile> tables;
  std::unique_ptr<Manifest> parsed;
  std::string label, digest;
};

/// Step-dependent scalars that the host decides. Weight decay defaults to 0.01
/// for AdamW and 0 for the others: see `defaults`.
struct Hyperparameters {
  double learningRate = 1e-3;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double weightDecay = 0.01;
  double momentum = 0.9;
  /// Largest global gradient norm, above 0; used if the program clips.
  double clipNorm = 1.0;
  /// A step with a larger gradient norm updates nothing; 0: none has.
  double skipNorm = 0;

  static Hyperparameters defaults(const Program &program);
};

/// Reaction to a loss or gradient norm of a step that is not finite. The step's
/// update is left out on all ranks, unless it is late.
enum class OnNan {
  Stop, ///< the step is an error that names the first layer with such a value
  Skip, ///< the session goes on, see StepResult::skipped
  Late  ///< the step is an error behind its update: weights are of no use then
};

/// Parameters that learn differently (parameter_groups.h). A parameter is of
/// the last group whose pattern matches its name; what no group has learns as
/// ever.
struct ParameterGroup {
  std::string pattern;         ///< '*' and '?' as in a shell
  double rate = 1;             ///< factor of the learning rate
  std::optional<double> decay; ///< instead of the weight decay, on any tensor
  /// True if the group is neither updated nor part of the gradient norm.
  bool frozen = false;

  bool operator==(const ParameterGroup &) const = default;
};

struct SessionOptions {
  uint64_t seed = 0;
  /// Decay on every tensor, not only on those of rank >= 2.
  bool decayAll = false;
  std::vector<ParameterGroup> groups;
  /// Threads of a rank's kernels; 0 means max(1, cores / ranks).
  int threadsPerRank = 0;
  OnNan onNan = OnNan::Stop;
  /// A rank that makes no progress for so long is an error that names it, what
  /// it does and who waits for it; the other ranks end. 0: wait for ever.
  double timeoutSeconds = 0;
  /// Fill memory between lifetimes with NaNs; also on by GRT_POISON=1.
  bool poison = false;
  /// Bytes per second that a CPU rank copies between its home on the host and
  /// its arena at most, one way; 0: as fast as it can. It sleeps for the rest:
  /// what swaps take over a slower link is measured so. Also given by
  /// GRT_COPY_RATE.
  double copyRate = 0;
  /// Bytes that the arenas of all ranks on this machine may take of its memory
  /// together; 0: what is available, as the system and the control groups of
  /// the process say. More is ExitMemory before any is taken.
  uint64_t hostMemoryBytes = 0;
  /// Leaves host memory for the copies that beginCheckpoint() makes, if there
  /// is room for them on every machine: see Session::writesBehind.
  bool checkpointCopies = false;
  /// Folder of the backend's library; empty: beside the runtime's own, then the
  /// system's search path.
  std::string backendFolder;
  /// Used instead of the library of the program's target, if set.
  const grt_backend *backend = nullptr;
  /// Runs on a model of a device instead, with the kernels of the CPU backend,
  /// that checks how the program uses streams and memory (docs/streams.md). Any
  /// program of one process will do, whatever its target.
  bool checkStreams = false;
  /// Steps can be recorded: see Session::record. A session without this has no
  /// cost for it.
  bool trace = false;
  /// True to give the device whole steps as graphs from the second step on, if
  /// backend and communication allow it, instead of one call after the other.
  bool graphs = true;
  /// Path to which this process's ranks write their last operations when one of
  /// them has failed, is stuck, or was ended by another process (JSON,
  /// docs/operations.md); empty: none.
  std::string flightFile;
  /// Choices that the backend made for its kernels in the run that this one
  /// continues (Session::kernelChoices), so that its sums are rounded alike.
  /// Backends that have no choice do not read it.
  std::string kernelChoices;
  /// The device of this process among those that it may use; without it the one
  /// of its number on its machine, as the launcher says.
  std::optional<int> device;
  /// Ranks may be on one device, for tests: all of this process are. Without it
  /// that is an error (exit code 2) which names them.
  bool shareDevices = false;
  /// Ranks of one node of the plan may be on several hosts, where the backend
  /// has devices. Without it that is an error (exit code 2) which names them
  /// and a level that the plan priced inside a node.
  bool anyPlacement = false;
  /// The ranks of all processes (processes.h); null: this one has them all.
  std::shared_ptr<World> world;
};

/// Way in which a training step was put on its device. Times of different kinds
/// are not of the same thing.
enum class StepKind : uint8_t {
  Calls,   ///< one call after the other, or graphs were being made
  Graphs,  ///< graphs that were there were started, and nothing else
  Recorded ///< calls with a trace of each
};

struct StepResult {
  uint64_t step = 0; ///< counts from 1
  /// Mean over `countedValues`, with the program's label smoothing.
  double loss = 0;
  /// Factor times mean of the squared logarithm of the sum of exponentials of
  /// the logits: trained beside the loss, and no part of it. 0 without.
  double zLoss = 0;
  double gradientNorm = 0; ///< global, before clipping
  double learningRate = 0;
  double milliseconds = 0;
  uint64_t countedValues = 0; ///< of the global batch, see Datum
  /// True if nothing was updated, see OnNan and Hyperparameters::skipNorm.
  bool skipped = false;
  StepKind kind = StepKind::Calls;
  /// The most bytes that a rank had in use at once (RankMemory), of all
  /// processes, where these meet in a step; the others' until shortly before
  /// its end.
  uint64_t peakBytes = 0;
};

struct RankMemory {
  int rank = 0;
  uint64_t plannedPeakBytes = 0; ///< the arena, as the plan has it
  /// Highest number of live bytes of the arena (states, data, losses and step
  /// block always; other buffers between their begin and end marks), plus
  /// `outsideArenaBytes` where the arena is the host's.
  uint64_t measuredPeakBytes = 0;
  /// Most heap bytes that the rank's thread held at once since loading.
  uint64_t outsideArenaBytes = 0;
  /// Most bytes of its device that were in use, by whomever, at the moments
  /// when the backend looked; 0 without a device.
  uint64_t deviceBytes = 0;
  /// Bytes of offloaded states on the host, which are not in the arena.
  uint64_t homeBytes = 0;
  /// Bytes of `homeBytes` that move to and from a device, but that the machine
  /// does not let the backend pin: copies of them are slower.
  uint64_t pageableBytes = 0;
};

/// Bytes that a rank has copied of states between their home on the host and
/// its device since it was loaded.
struct RankSwaps {
  struct Bytes {
    uint64_t in = 0, out = 0;
  };
  int rank = 0;
  Bytes parameters, gradients, optimizer, activations;
  uint64_t in() const {
    return parameters.in + gradients.in + optimizer.in + activations.in;
  }
  uint64_t out() const {
    return parameters.out + gradients.out + optimizer.out + activations.out;
  }
};

/// The clock of a device, and why it is slow.
struct DeviceClock {
  double megahertz = 0;   ///< 0: unknown
  uint64_t slowdowns = 0; ///< why it is slow, bits of whoever told
};

/// Time that a rank waited for others: in communication that its host waits
/// for, or its device, in steps in which that is measured
/// (Session::measureWaits).
struct RankWork {
  int rank = 0;
  int stage = 0;
  double waitedSeconds = 0;
  DeviceClock clock = {}; ///< as its process told
};

/// Shares of a step's time over all ranks, by what it goes to; they add up to
/// 1.
struct TimeShares {
  double compute = 0;              ///< kernels run
  double exposedCommunication = 0; ///< data moves and no kernel runs
  double bubble = 0;               ///< waiting for other ranks
  double idle = 0;                 ///< none of these
  double milliseconds = 0;         ///< of a step, the average
  uint64_t steps = 0;              ///< that were looked at
};

/// Seconds that one call of a layer's functions takes in recorded steps: the
/// mean over the calls of a step, the median over the steps; 0 if there was
/// none. On a device it is what the kernels take there.
struct LayerSeconds {
  std::string name;
  double forward = 0;
  double recompute = 0; ///< of a layer that does not keep what backward needs
  double backward = 0;  ///< with its weight part, where that is split off
  double update = 0;    ///< with the layer's part of the gradient norm
};

/// A recorded step, rank by rank, as a drawing shows it: what is too short to
/// be seen is joined to its neighbour. Milliseconds since the step's beginning.
struct StepPicture {
  enum class Kind : uint8_t { Forward, Backward, Update, Communication, Wait };
  struct Span {
    Kind kind;
    double begin, end;
  };
  struct Rank {
    int rank, stage;
    /// Computation, then communication, which may run beside it.
    std::vector<Span> measured, predicted;
    std::vector<std::pair<double, uint64_t>> memory; ///< time, live bytes
    uint64_t plannedBytes;
  };
  uint64_t step = 0; ///< 0: none was recorded
  double measuredMs = 0;
  double predictedMs = 0; ///< 0: the program does not have its times
  std::vector<Rank> ranks;
};

/// A parameter, its gradient or its optimizer state in the Hugging Face layout.
struct Tensor {
  std::vector<int64_t> shape;
  std::vector<double> values; ///< row-major
};
using TensorMap = std::map<std::string, Tensor>;

/// Kind of value that a tensor has of a parameter.
enum class TensorKind : uint8_t {
  Parameter,
  Gradient,   ///< see Session::gradients
  FirstState, ///< Adam's m, or the momentum
  SecondState ///< Adam's v
};

/// Result of a checkpoint that was written while steps went on.
struct CheckpointEnd {
  double seconds = 0;  ///< that this process's thread wrote
  std::string warning; ///< see Session::writeCheckpoint
};

/// Input of a model's encoder while its decoder predicts.
struct EncoderPrompt {
  /// 1 to seq-len of them.
  std::span<const int32_t> tokens;
  /// Token that fills the input behind them; a mask, if the model has one,
  /// hides it.
  int32_t padding = 0;
};

/// A token of one of the texts whose keys and values a program keeps.
struct RowToken {
  int32_t row = 0;      ///< below Program::cacheRows()
  int32_t position = 0; ///< in the text, below Program::cacheLength()
  int32_t token = 0;
};

/// The source of a text that begins, which the encoder in front of the decoder
/// that writes it reads.
struct RowSource {
  int32_t row = 0; ///< below Program::cacheRows()
  EncoderPrompt text;
};

/// A program in execution. All calls come from one thread at a time. After an
/// error of a rank (in a step, or while a checkpoint is written or read) the
/// session can only be destroyed. After a rank was stuck the process should end
/// soon: the rank's thread cannot be, and its memory stays.
class Session {
public:
  ~Session();
  Session(const Session &) = delete;
  Session &operator=(const Session &) = delete;

  /// Allocates the arenas, starts the ranks and makes the initial weights.
  static Status create(std::shared_ptr<const Program> program,
                       const SessionOptions &options,
                       std::unique_ptr<Session> &result);

  const Program &program() const;
  Hyperparameters &hyperparameters();

  /// Sets the global batch of the next steps: for each of the program's data
  /// the values of all samples. A negative value of the counted datum takes no
  /// part in the loss. It may be a multiple of the program's batch, which a
  /// step then does in parts before its one update; an evaluation takes one.
  Status setBatch(const DataBatch &batch);
  /// Sets a batch of which only samplesRead() need be there; `counted` values
  /// of the whole batch, which is the same in all processes, count.
  Status setBatch(const DataBatch &batch, uint64_t counted);
  /// Sets the batch of the step behind the next one, for programs whose
  /// gradients are late (Program::gradientDelay): the next step begins with it,
  /// which then is the batch that is set. Without one a step leaves nothing
  /// begun. What was begun can be given up, by another setBatch() or an
  /// evaluation: it was time, nothing else.
  Status setNextBatch(const DataBatch &batch);
  Status setNextBatch(const DataBatch &batch, uint64_t counted);
  /// True if the batch that is set was begun.
  bool hasBegun() const;
  /// True if ranks go on without the others behind a step: there is no gradient
  /// norm then.
  bool goesAhead() const;
  /// The samples that the ranks of this process read.
  const SamplesRead &samplesRead() const;
  /// Sets the batch of a program with two data of 32-bit integers, such as
  /// tokens and labels.
  Status setBatch(std::span<const int32_t> first,
                  std::span<const int32_t> second);
  /// Runs a training step on the batch that was set last. Programs whose
  /// gradients are late need OnNan::Late, and have no gradient norm (it is 0):
  /// their updates do not wait for all ranks. A loss that is not finite under
  /// OnNan::Stop is ExitNumerics and leaves the session as it was before the
  /// step.
  Status step(StepResult &result);
  /// Returns when a device has done all it was asked for: a step ends before
  /// its last kernels do, and their failure would show later. At once without
  /// one.
  Status finish();
  /// Loss (mean over the counted values) of the batch that was set last,
  /// without label smoothing and z-loss; no dropout, nothing is changed.
  /// `hits`, if given: how many of these values have the largest logit, alone
  /// or with others.
  Status evaluate(double &loss, uint64_t &countedValues,
                  uint64_t *hits = nullptr);
  /// The token that follows each prefix of `tokens` with the largest logit:
  /// result[i] follows tokens[0..i]. At most seq-len of them, or, where the
  /// model has an encoder, as many as its decoder reads; `encoder` is given
  /// there and nowhere else. ExitInvalid if Program::predictsTokens() is false.
  Status predict(std::span<const int32_t> tokens, std::vector<int32_t> &result,
                 const EncoderPrompt *encoder = nullptr);
  /// The logits of what follows `tokens`, a number for every word of the
  /// vocabulary, the same in all processes.
  Status predictScores(std::span<const int32_t> tokens,
                       std::vector<double> &result,
                       const EncoderPrompt *encoder = nullptr);

  /// Computes at most Program::batchSize() tokens, whose keys and values are
  /// kept from then on; those of the positions before each are there already,
  /// or stand in front of it. `result` has the likeliest token behind each,
  /// `scores`, if given, the logits, those of one token behind the other. A
  /// text that begins at position 0 of a row is another than the one before it
  /// there. `sources`, at most as many, are of texts that begin with this call,
  /// one a row; they are given if and only if Program::cachesSources(), before
  /// or with the first token of the row. ExitInvalid if the program keeps no
  /// keys.
  Status decode(std::span<const RowToken> tokens, std::vector<int32_t> &result,
                std::vector<double> *scores = nullptr,
                std::span<const RowSource> sources = {});

  /// Global views, gathered from the ranks; empty in processes without rank 0.
  /// Gradients are those of the last
  /// step, synchronised, before clipping. Optimizer states are named after
  /// their parameter with ".m" and ".v" (adam), ".momentum" (sgd) appended.
  Status parameters(TensorMap &result);
  Status gradients(TensorMap &result);
  Status optimizerState(TensorMap &result);
  /// Returns one tensor of a kind, that of the parameter `name`.
  Status tensor(const std::string &name, TensorKind kind, Tensor &result);
  /// Replaces the value of one parameter on every rank that holds it.
  Status setParameter(const std::string &name, std::span<const double> values);

  /// Writes `directory`/model.safetensors and config.json, each atomically; of
  /// a program with adapters adapter_model.safetensors and adapter_config.json,
  /// as PEFT does, or with `merge` the whole model with what they add.
  Status save(const std::string &directory, bool merge = false);
  /// Writes the gradients of the last step as safetensors.
  Status saveGradients(const std::string &path);

  /// Writes a checkpoint of the state after the last step; every rank writes
  /// the elements that it owns. `state.step` must be `stepsDone()`. An older
  /// checkpoint that cannot be removed is no error: `warning` says so, in the
  /// process with rank 0.
  Status writeCheckpoint(const CheckpointFolder &folder,
                         const TrainingState &state,
                         std::string *warning = nullptr);
  /// True if there was room for SessionOptions::checkpointCopies: a copy of the
  /// parameters and optimizer state that the ranks of a process own, in its
  /// memory.
  bool writesBehind() const;
  /// Copies what writeCheckpoint() writes; a thread of every process writes the
  /// copies while the ranks go on, until endCheckpoint(). `folder` must live
  /// until then. One at a time; all processes make the calls together.
  Status beginCheckpoint(const CheckpointFolder &folder,
                         const TrainingState &state);
  /// True if this process has not finished its part.
  bool isWriting() const;
  /// Waits for all processes and completes the checkpoint.
  Status endCheckpoint(CheckpointEnd &end);
  /// Loads weights and optimizer state of a checkpoint (`step-...`), written
  /// under any plan, and goes on from its step. Every rank reads what it holds
  /// straight into its arena. Hyperparameters are the caller's to restore, see
  /// readTrainingState. Where gradients are late a checkpoint has two versions
  /// of the parameters. A program that wants two and finds one goes on from two
  /// that are equal; one that wants one drops the older: `note` says so.
  Status resume(const std::string &checkpoint, std::string *note = nullptr);
  /// Loads the weights of a Hugging Face model: a safetensors file, or a folder
  /// with `model.safetensors` or its index (checkpoints are such folders).
  /// Every tensor of the program must be there with its shape, but adapters: if
  /// there is none of them, they stay as they are.
  Status loadWeights(const std::string &path);
  /// Loads the adapters in a folder of PEFT's: of one that scales what they add
  /// as the program does. Every adapter of the program must be there.
  Status loadAdapters(const std::string &path);
  /// Sets whether the next steps are recorded; needs SessionOptions::trace.
  Status record(bool on);
  /// Forgets the steps that are recorded.
  void forgetRecorded();
  /// Shares of the recorded steps, and of the step that the cost model expects
  /// (`steps` is 0 if the program does not have its times).
  Status timeShares(TimeShares &measured, TimeShares &predicted) const;
  /// Times of every layer of the model in its order, as the ranks of this
  /// process recorded them; without a name if none of them has the layer.
  Status layerSeconds(std::vector<LayerSeconds> &result) const;
  /// The last recorded step, of at most `mostRanks` ranks of this process, one
  /// of each stage.
  Status stepPicture(size_t mostRanks, StepPicture &picture) const;
  /// Writes the recorded steps, and what the cost model expects beside each, as
  /// a Chrome trace.
  Status writeTrace(const std::string &path) const;

  uint64_t stepsDone() const;
  /// False after an error of a rank: nothing that ranks hold can be had.
  bool usable() const;
  int threadsPerRank() const;
  /// Once a rank has failed: where its process left what its ranks did last, or
  /// why it could not. Empty if nothing is to be said.
  std::string flightNote() const;
  /// Choices that the backend of this process made for its kernels and that
  /// decide how sums are rounded; for SessionOptions::kernelChoices of the runs
  /// that go on from this one. Empty where there is none.
  std::string kernelChoices() const;
  /// Number of graphs of the device that a training step is from the second on;
  /// 0: steps are put on its streams call by call, or there is no device.
  int graphsPerStep() const;
  /// The reason why a step is not one graph, in words that follow "as"; empty
  /// if it is, or if there is no device.
  std::string whyNotOneGraph() const;
  /// Warnings to be printed before steps: ranks of one node of the plan that
  /// are on several hosts all the same; once in a process, variables that a
  /// library should have found when it was loaded (variables.h), and what that
  /// costs.
  const std::vector<std::string> &notes() const;
  /// The library that carries collectives between devices, with its version and
  /// file; empty where there is none.
  std::string collectivesLibrary() const;
  /// Shares requests, as bits, between processes: `bits` are told with the next
  /// step, and the answer is those of all processes that were told
  /// requestsLate() steps before, the same in all; 0 if there was none. No
  /// message of its own. Of one process `bits` itself.
  uint32_t anywhere(uint32_t bits);
  /// 0 in one process, 1, or 2 where ranks go on without the others.
  unsigned requestsLate() const;
  /// Compares the parameters of data-parallel replicas, bit by bit. A
  /// difference names layers and ranks, and ends the session. All processes
  /// make the call together.
  Status checkReplicas();
  /// Sets whether the time that devices wait for other ranks is measured from
  /// the next step on, for takeWork(); such a step is put on streams call by
  /// call. Nothing where ranks have no devices, or these no clocks. All
  /// processes make the call between the same steps.
  void measureWaits(bool on);
  /// Returns the work of every rank of every process since the last call, which
  /// they make together; empty after a failure. `clock` is this process's
  /// device's, which all get.
  std::vector<RankWork> takeWork(const DeviceClock &clock = {});
  /// Memory of all ranks of all processes, which make the call together, or of
  /// this process's own.
  std::vector<RankMemory> memory(bool everywhere = true);
  /// Swaps of the ranks of this process.
  std::vector<RankSwaps> swaps();

  struct Implementation;

private:
  Session();
  std::unique_ptr<Implementation> impl;
};

} // namespace grt

#endif // GRT_SESSION_H
