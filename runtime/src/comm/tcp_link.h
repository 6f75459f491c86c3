//===- tcp_link.h - Messages of two processes over one connection ---------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A message of more than `smallBytes` stays with its owner until the other side
// has posted the receive for it, and moves from the owner's memory to the
// receiver's without a copy. A smaller one may go before, as long as there is
// credit: those that wait to be written or to be received, each with its
// overhead, are at most `window` bytes in either direction, all tags together.
// One without credit waits for its receive as large ones do.
//
// No deadlock: whatever stands in the stream can be taken from it at once, as
// it is control, a message whose receive is there, or one that credit keeps a
// place for. So a side that reads never stops, a side that writes gets on, and
// a send waits for its own receive only.
//
// Receives of a tag are counted. The receiver says up to which number they are
// posted; the sender starts the message of that number, in order. As counts and
// not requests are told, messages that went on credit need no answer, and a
// receive that is given up leaves its number to the next one. A send that is
// given up while it is written is filled up, and its end says that it was none.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_COMM_TCP_LINK_H
#define GRT_COMM_TCP_LINK_H

#include "comm/sockets.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace grt {

class TcpLink;

/// A send or a receive; belongs to who asked for it.
struct TcpOperation {
  TcpLink *link = nullptr; ///< null: nothing will come of it any more
  int process = 0;         ///< the other one
  bool sends = false;
  int tag = 0;
  char *data = nullptr;
  size_t bytes = 0;
  bool done = false;
  int exitCode = 1; ///< with a problem
  std::string problem;
  bool paid = false; ///< a send on credit
  /// The caller does not wait for it: it has a copy, and belongs to the link.
  bool isCopied = false;
  std::vector<char> copy;
};

/// One side of the messages with one other process, or with this one itself.
/// The caller holds the lock.
class TcpLink {
public:
  /// Messages up to here may go before their receive is posted.
  static constexpr size_t smallBytes = 4096;
  /// Credit for them; each costs its bytes and `overhead`.
  static constexpr size_t window = 64 << 10, overhead = 64;
  /// Most bytes of messages that a link holds: its own that wait to be written,
  /// the other side's that wait to be received, and the buffer that it reads
  /// into.
  static constexpr size_t readBytes = 16 << 10;
  static constexpr size_t mostHeld = 2 * window + readBytes;
  static constexpr size_t largestMessage = size_t(1) << 26;

  explicit TcpLink(int process) : process(process) {}
  ~TcpLink() { close(); }
  TcpLink(const TcpLink &) = delete;
  TcpLink &operator=(const TcpLink &) = delete;

  const int process; ///< the other one

  /// Messages of the process with itself.
  void loop() { isLoop = true; }
  /// `connects`: this side has made the connection. The other one writes
  /// nothing before it has heard that its answer arrived.
  void open(Connection connection, bool connects);
  /// The connection is gone. Nothing completes from here on, but for receives
  /// of what has come.
  void close();
  /// Makes the connection as if it had never been made; allowed before the
  /// other side has said anything.
  void forget();
  /// Fails the operations that wait and all that follow.
  void fail(int exitCode, const std::string &problem);
  /// Ends writing; messages that come are still read.
  void endWriting();

  bool isOpen() const { return state == State::Open; }
  /// True if the other side knows of the connection.
  bool isStanding() const { return isOpen() && isConfirmed; }
  bool isGone() const { return state == State::Gone; }
  int descriptor() const { return connection.descriptor(); }
  /// True if something could be written now.
  bool wantsToWrite() const;
  /// True if bytes are left to write of sends that were copied, which nobody
  /// waits for.
  bool hasCopies() const { return copies > 0; }
  /// The most bytes of messages that were held at once so far.
  size_t mostHeldYet() const { return peak + readBytes; }
  /// The process that the other side has seen end, or -1.
  int lostProcess() const { return lost; }

  /// Null: complete.
  TcpOperation *send(int tag, const void *data, size_t bytes);
  TcpOperation *receive(int tag, void *data, size_t bytes);
  void cancel(TcpOperation *operation);
  /// Tells the other side that a process has ended.
  void tellLost(int process);

  /// Moves what can be moved now; false if the connection is gone.
  bool write();
  bool read();

private:
  enum class State { New, Open, Gone };
  enum class Kind : uint32_t {
    Hello,   ///< of the side that connects: its connection stands
    Message, ///< `number` bytes follow, for a receive that is posted; then End
    Small,   ///< `number` bytes follow, on credit
    End,     ///< of a message; 0: it is whole, 1: it was given up
    Posted,  ///< receives of the tag are posted up to this number
    Credit,  ///< `number` bytes of credit are back
    Lost,    ///< process `number` has ended
  };
  struct Head {
    Kind kind;
    int32_t tag;
    uint64_t number;
  };
  struct Arrived {
    std::vector<char> content;
    bool paid;
  };
  /// The messages of one tag.
  struct Channel {
    std::deque<TcpOperation *> unsent; ///< not started, in order
    uint64_t started = 0;              ///< messages, in all
    uint64_t posted = 0;               ///< receives of the other side
    std::deque<TcpOperation *> waiting;
    std::deque<Arrived> arrived; ///< small ones without a receive
    uint64_t told = 0;           ///< receives posted, as was said
    uint64_t came = 0;           ///< messages, in all
  };

  static size_t costOf(size_t bytes) { return bytes + overhead; }
  void hold(size_t bytes) {
    held += bytes;
    peak = std::max(peak, held);
  }
  void control(Kind kind, int tag, uint64_t number);
  void startWhatMay(Channel &channel);
  void takeBack(TcpOperation &operation);
  void beginWriting();
  void endItem();
  void matchLoop(Channel &channel);
  void abandonAll(int code, const std::string *why);
  bool parse();
  bool take(const Head &head);
  bool beginMessage(const Head &head);
  void concludeMessage(bool whole);
  static void finish(TcpOperation &operation, size_t bytes);
  void match(Channel &channel, const std::vector<char> &content, bool paid);
  void giveBack(size_t bytes);

  State state = State::New;
  bool isLoop = false;
  bool isConfirmed = false; ///< the other side knows that this one is connected
  bool writes = true;
  int exitCode = 1;
  std::string problem;
  int lost = -1;
  Connection connection;
  std::map<int, Channel> channels; ///< by tag

  // The writer's state: it writes control messages, then the operation at the
  // front, then the next.
  std::string controls;
  std::deque<TcpOperation *> started;
  struct Writing {
    bool isActive = false;
    TcpOperation *operation = nullptr; ///< null: given up
    Head head{}, end{};
    size_t bytes = 0; ///< of the body
    size_t done = 0;  ///< of head, body and end together
  } writing;
  size_t credit = window;
  size_t copies = 0; ///< messages
  size_t held = 0, peak = 0;

  // The reader's state.
  std::unique_ptr<char[]> stage;
  size_t stageBegin = 0, stageEnd = 0;
  struct Reading {
    Kind kind = Kind::Hello;
    int tag = 0;
    TcpOperation *operation = nullptr; ///< null: given up, or not yet posted
    size_t bytes = 0, done = 0;
    bool inBody = false, awaitsEnd = false;
    bool isCounted = false; ///< in `came` of its channel
    std::vector<char> kept; ///< a small message without a receive
    char *to = nullptr;     ///< null: passed over
  } reading;
  size_t owed = 0; ///< credit that was not given back yet
};

} // namespace grt

#endif // GRT_COMM_TCP_LINK_H
