//===- model.h - Ranks, streams and what is on them -----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Operations wait in the queue of their stream until some host must have them
// done. Then they run in an order that a seed picks out of all orders that the
// device would be free to take: one stream as far as it can go, then another,
// and nothing that nobody waits for. What is not ordered by events,
// collectives, messages or a waiting host therefore shows in the values sooner
// or later; and clocks say so at once, whatever order was picked.
//
// Whoever calls anything here holds a ModelLock.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BACKENDS_RECORDING_MODEL_H
#define GRT_BACKENDS_RECORDING_MODEL_H

#include "memory.h"

#include <array>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <random>
#include <set>

namespace grt::recording {

/// A lock on the one mutex of all models, which those who run operations hand
/// over to whoever wants it.
class ModelLock {
public:
  ModelLock();
  void handOver();
  std::unique_lock<std::mutex> lock;
};

struct Rank;
struct Operation;

/// A record of an event.
struct Marker {
  bool done = false;
  uint64_t capture = 0; ///< the graph it means something in; 0: outside
  Clock clock;
  double milliseconds = 0; ///< when it was done
};

/// Bytes of an allocation that an operation uses, or of a home.
struct Touch {
  Allocation *allocation;
  uint64_t begin, end; ///< addresses
  bool writes;
  std::shared_ptr<HomeRange> home = nullptr; ///< without an allocation

  /// "its arena", "its home".
  const char *where() const { return home ? "its home" : "its arena"; }
};

enum class CollectiveKind {
  AllReduce,
  AllGather,
  ReduceScatter,
  AllReduceMax,
  AllToAll
};
const char *collectiveName(CollectiveKind kind);

/// What a member brings to a collective; memory of the model.
struct Part {
  CollectiveKind kind = CollectiveKind::AllReduce;
  const void *in = nullptr;
  void *out = nullptr, *scratch = nullptr;
  uint64_t count = 0; ///< elements, or bytes of a gather or of a block
  uint32_t dtype = GRT_U8;
  bool accumulate = false;
};

/// One collective of a group: complete when all members have come.
struct Assembly {
  std::vector<Operation *> members; ///< by index in the group
  size_t arrived = 0;
};

struct Group {
  std::vector<int> ranks;
  std::vector<uint64_t> calls; ///< of each member
  std::map<uint64_t, Assembly> assemblies;
};

/// A piece whose operation runs.
struct Half {
  Operation *operation;
  char *memory;
  uint64_t bytes;
};

struct Piece {
  int peer;
  bool sends;
  char *memory;
  uint64_t bytes;
  uint64_t number; ///< of all from one rank to another, as their hosts put them
};

struct Operation {
  enum class Kind { Work, Record, Wait, Collective, Exchange, Joined };
  Kind kind = Kind::Work;
  Rank *rank = nullptr;
  uint32_t stream = 0;
  std::shared_ptr<OperationLabel> label;
  /// What the host knew when it made the call.
  std::shared_ptr<const Clock> host;
  std::vector<Touch> touches;
  bool started = false;
  /// Collectives that share this rank and another one with it, and must come
  /// before it.
  std::vector<LabelPointer> behind;

  /// Work. Status and message as of kernels.
  std::function<int32_t(char *, size_t)> run;
  std::shared_ptr<Marker> marker; ///< Record, Wait
  /// Record inside a graph: the event that every start records for the host.
  std::optional<uint32_t> hostEvent;
  /// Whom the rank meets here, and what for: see World::expectOrder.
  std::vector<int> meets;
  std::string pairing;
  Group *group = nullptr; ///< Collective, or Exchange between its members
  size_t member = 0;
  uint64_t sequence = 0;
  Part part;
  std::vector<Piece> pieces; ///< Exchange
  size_t piecesLeft = 0;
  Clock began;
  /// Joined: the last operation of each stream that must have come before.
  std::array<LabelPointer, GRT_STREAM_COUNT> before;
};

struct Stream {
  std::deque<std::unique_ptr<Operation>> queue;
  Clock clock; ///< at the end of what was done
  uint64_t issued = 0;
  std::shared_ptr<const OperationLabel> last;
};

struct World {
  explicit World(int size, uint64_t seed);

  int size() const { return int(ranks.size()); }
  /// Runs what is needed until all of these streams of a rank are empty; the
  /// host then knows of it.
  void drain(ModelLock &lock, Rank &rank, uint32_t stream);
  /// The same until the marker is done.
  void await(ModelLock &lock, Rank &rank, std::shared_ptr<Marker> marker);
  /// The first thing that went wrong; nothing runs after it.
  void fail(const std::string &what);
  /// Ranks come to collectives and exchanges in one order, over all streams:
  /// `what` is the next of the label's rank that `other` takes part in.
  void expectOrder(const OperationLabel &label, int other,
                   const std::string &what);
  /// What the hosts of those that meet in an operation see of it as it is put
  /// on its stream.
  void put(Operation &operation);
  /// The host uses what `touch` says, without an operation.
  void useByHost(Rank &rank, const Touch &touch, const std::string &what);
  /// A collective (or an exchange) takes part with `other`: two that share two
  /// ranks need an order on the device too, unless both are exchanges.
  void putBehind(Operation &operation, int other, bool isCollective);
  Group *group(const std::vector<int> &ranks);
  /// The next number of a piece on its way from one rank to another.
  uint64_t numberPiece(int from, int to, bool sends) {
    Channel &channel = channels[{from, to}];
    return sends ? channel.sent++ : channel.expected++;
  }

  std::vector<Rank *> ranks; ///< those that have joined
  std::string problem;
  bool aborted = false;
  std::condition_variable changed;

private:
  bool isDrained(const Rank &rank, uint32_t stream) const;
  /// Whether there is what the rank's host waits for.
  bool hasArrived(const Rank &rank) const;
  void runUntilArrived(ModelLock &lock, Rank &rank);
  bool canAct(const Rank &rank, uint32_t stream) const;
  void act(Rank &rank, uint32_t stream);
  void start(Operation &operation, Clock &clock);
  void assemble(Operation &operation);
  void match(Operation &operation);
  void complete(Operation &operation);
  void use(const Touch &touch, const LabelPointer &label, const Clock &clock);
  void checkJoined(const Operation &operation, const Clock &clock);
  std::string describeStuck() const;

  struct PairedOperation {
    std::string what;
    OperationLabel label;
  };
  std::map<std::pair<int, int>, std::deque<PairedOperation>> pairedOperations;
  /// The last of a rank with another one.
  struct LastPaired {
    LabelPointer collective, exchange;
  };
  std::map<std::pair<int, int>, LastPaired> lastPaired;
  struct Channel {
    uint64_t sent = 0, expected = 0; ///< pieces put on streams
    std::map<uint64_t, Half> sends, receives;
  };
  std::map<std::pair<int, int>, Channel> channels;
  std::map<std::vector<int>, std::unique_ptr<Group>> groups;
  std::mt19937_64 random;
};

struct Rank {
  Rank(int number, const grt_backend &base) : base(base), number(number) {}

  size_t queueOf(uint32_t stream) const {
    return size_t(number) * (GRT_STREAM_COUNT + 1) + stream;
  }
  size_t queueOfHost() const { return queueOf(GRT_STREAM_COUNT); }

  const grt_backend &base;
  int number;            ///< in `world`
  void *state = nullptr; ///< of `base`
  std::shared_ptr<World> world;
  std::array<Stream, GRT_STREAM_COUNT> streams;
  std::vector<std::shared_ptr<Marker>> events;
  std::shared_ptr<const Clock> host;
  uint64_t hostUses = 0;            ///< of homes, by the host itself
  std::optional<uint32_t> waitsFor; ///< a stream, or all of them
  std::shared_ptr<Marker> awaits;   ///< or this marker
  std::string place;
  /// Addresses of the plan: buffers for ever, all memory, buffers alive.
  struct Span {
    const char *begin, *end;
  };
  /// Whether all of [begin, end) is in one buffer that is there.
  bool isAlive(const char *begin, const char *end) const;
  std::vector<Span> kept, planned, live;
  bool tracksLives = false;
  std::array<uint64_t, GRT_STREAM_COUNT> issuedBefore{}; ///< the function
  std::set<Allocation *> used;
  std::vector<char> scratch; ///< of kernels that need more than the plan gives
  /// What is put on streams goes into a graph; what the streams had before.
  bool capturing = false;
  uint64_t captures = 0; ///< graphs begun so far
  std::vector<std::unique_ptr<Operation>> captured;
  std::array<std::pair<uint64_t, LabelPointer>, GRT_STREAM_COUNT> beforeCapture;
  std::map<uint32_t, std::vector<std::unique_ptr<Operation>>> graphs;
  std::vector<std::shared_ptr<Marker>> stamps;
};

} // namespace grt::recording

#endif // GRT_BACKENDS_RECORDING_MODEL_H
