//===- tokenize.cpp - Text to shards --------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Threads encode units of about a MiB, and one writes them in the order of the
// text. No more units wait than threads can take up, so that memory is bounded
// whatever the text's length. A part of a long document is what it would be
// inside the whole, or its thread says that it is none (Encoder::encodePart)
// and the writer encodes it together with the next.
//
//===----------------------------------------------------------------------===//

#include "tokenize.h"
#include "core/error.h"
#include "core/text.h"
#include "grt/tokenizer.h"
#include "shards.h"
#include "source.h"

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <mutex>
#include <thread>
#include <unistd.h>

namespace grt::data {
namespace {

/// The tokens of a unit.
struct Encoded {
  Unit unit;
  std::vector<uint32_t> ids;
  std::vector<size_t> ends; ///< of documents among them
  bool ends_here = true;    ///< of a part: whether a token ends at its end
  Status status;
  bool isDone = false;
};

/// A line on a terminal that says how far it is.
class Progress {
public:
  explicit Progress(uint64_t bytes) : bytes(bytes), shown(isatty(2) != 0) {}
  ~Progress() {
    if (shown && hasLine)
      std::fputc('\n', stderr);
  }
  void update(uint64_t done, uint64_t tokens) {
    auto now = std::chrono::steady_clock::now();
    constexpr std::chrono::milliseconds between(200);
    if (!shown || now - last < between)
      return;
    last = now;
    hasLine = true;
    double seconds = std::chrono::duration<double>(now - begin).count();
    double rate = double(done) / std::max(seconds, 1e-3);
    std::fprintf(stderr,
                 "\r%s of %s, %.4g million tokens, %s/s, %.0f s left   ",
                 bytesText(done).c_str(), bytesText(bytes).c_str(),
                 double(tokens) / 1e6, bytesText(uint64_t(rate)).c_str(),
                 double(bytes - done) / std::max(rate, 1.0));
    std::fflush(stderr);
  }

private:
  uint64_t bytes;
  bool shown, hasLine = false;
  std::chrono::steady_clock::time_point begin =
      std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point last = begin;
};

class Tokenization {
public:
  Tokenization(const Options &options, const Tokenizer &tokenizer)
      : options(options), tokenizer(tokenizer),
        writer({options.output, widthOf(options, tokenizer),
                options.shardTokens, options.tokenizer, tokenizer.hash(),
                tokenizer.vocabularySize()}),
        ownEncoder(tokenizer) {
    if (options.end.empty())
      return;
    std::optional<uint32_t> id = tokenizer.find(options.end);
    if (!id)
      invalid("--end: expected a token of the tokenizer, found '" +
              options.end + "'");
    end = *id;
  }

  void run() {
    uint64_t bytes = 0;
    for (const std::string &input : options.inputs) {
      std::error_code ignored;
      bytes += std::filesystem::file_size(input, ignored);
    }
    Progress progress(bytes);
    unsigned threads = options.threads
                           ? options.threads
                           : std::max(1u, std::thread::hardware_concurrency());
    Workers workers(*this, threads);
    // Enough that no thread waits while one unit is written.
    const size_t most = 4 * size_t(threads);
    for (const std::string &input : options.inputs) {
      auto file = std::make_shared<const TextFile>(input);
      for (Unit &unit :
           unitsOf(file, documentsOf(input), tokenizer.hasParts())) {
        workers.push(std::move(unit));
        while (workers.waiting() >= most)
          take(workers, progress);
      }
    }
    while (workers.waiting())
      take(workers, progress);
    writer.finish();
    std::printf("%s: %llu tokens of %llu documents in %zu shard%s\n",
                options.output.c_str(), (unsigned long long)writer.tokens(),
                (unsigned long long)writer.documents(), writer.shards(),
                writer.shards() == 1 ? "" : "s");
  }

private:
  /// Threads that encode what is pushed; results come in the same order.
  class Workers {
  public:
    Workers(const Tokenization &owner, unsigned count) : owner(owner) {
      for (unsigned i = 0; i < count; ++i)
        threads.emplace_back([this] { work(); });
    }
    ~Workers() {
      {
        std::lock_guard lock(mutex);
        isOver = true;
      }
      wake.notify_all();
      for (std::thread &thread : threads)
        thread.join();
    }
    void push(Unit unit) {
      std::lock_guard lock(mutex);
      all.push_back(std::make_shared<Encoded>());
      all.back()->unit = std::move(unit);
      todo.push_back(all.back());
      wake.notify_all();
    }
    size_t waiting() const { return all.size(); }
    /// The oldest result; waits for it.
    std::shared_ptr<Encoded> pop() {
      std::unique_lock lock(mutex);
      std::shared_ptr<Encoded> oldest = all.front();
      wake.wait(lock, [&] { return oldest->isDone; });
      all.pop_front();
      return oldest;
    }

  private:
    void work() {
      Encoder encoder(owner.tokenizer);
      std::unique_lock lock(mutex);
      for (;;) {
        wake.wait(lock, [&] { return isOver || !todo.empty(); });
        if (isOver)
          return;
        std::shared_ptr<Encoded> next = todo.front();
        todo.pop_front();
        lock.unlock();
        next->status = guarded([&] { owner.encode(encoder, *next); });
        lock.lock();
        next->isDone = true;
        wake.notify_all();
      }
    }

    const Tokenization &owner;
    std::vector<std::thread> threads;
    std::mutex mutex;
    std::condition_variable wake;
    std::deque<std::shared_ptr<Encoded>> all, todo;
    bool isOver = false;
  };

  static uint32_t widthOf(const Options &options, const Tokenizer &tokenizer) {
    bool fits = tokenizer.vocabularySize() <= 65536;
    if (options.width == 2 && !fits)
      invalid("--format=u16: expected a vocabulary of at most 65536 tokens, "
              "found " +
              str(tokenizer.vocabularySize()));
    return options.width ? options.width : fits ? 2 : 4;
  }

  Documents documentsOf(const std::string &path) const {
    if (options.documents != Documents::BySuffix)
      return options.documents;
    return path.ends_with(".jsonl") ? Documents::JsonLines : Documents::File;
  }

  void encode(Encoder &encoder, Encoded &to) const {
    const Unit &unit = to.unit;
    std::string_view text = unit.file->text();
    auto one = [&](std::string_view document, size_t at) {
      Status status = encoder.encode(document, options.special, to.ids);
      if (!status)
        fail(ExitCode(status.exitCode()), "text file '" + unit.file->name() +
                                              "', document at byte " + str(at) +
                                              ": " + status.message());
      if (end)
        to.ids.push_back(*end);
      to.ends.push_back(to.ids.size());
    };
    if (unit.documents == Documents::Line)
      return eachLine(unit, one);
    if (unit.documents == Documents::JsonLines)
      return eachLine(unit, [&](std::string_view line, size_t at) {
        one(textOfJson(unit, line, at, options.key), at);
      });
    if (!unit.isPart)
      return one(text.substr(unit.begin, unit.end - unit.begin), unit.begin);
    encodePart(encoder, unit, to.ids, to.ends_here);
  }

  void encodePart(Encoder &encoder, const Unit &unit,
                  std::vector<uint32_t> &ids, bool &endsHere) const {
    Status status = encoder.encodePart(unit.file->text(), unit.begin, unit.end,
                                       ids, endsHere);
    if (!status)
      fail(ExitCode(status.exitCode()),
           "text file '" + unit.file->name() + "': " + status.message());
  }

  /// Writes the oldest result.
  void take(Workers &workers, Progress &progress) {
    std::shared_ptr<Encoded> encoded = workers.pop();
    if (!encoded->status)
      fail(ExitCode(encoded->status.exitCode()), encoded->status.message());
    done += encoded->unit.end - encoded->unit.begin;
    if (encoded->unit.isPart)
      takePart(*encoded);
    else
      takeDocuments(*encoded);
    progress.update(done, writer.tokens());
  }

  void takeDocuments(const Encoded &encoded) {
    size_t begin = 0;
    for (size_t end : encoded.ends) {
      writer.add({encoded.ids.data() + begin, end - begin});
      writer.endDocument();
      begin = end;
    }
  }

  void takePart(Encoded &encoded) {
    const bool isFirst = !inDocument;
    inDocument = !encoded.unit.isLast;
    if (options.special && isFirst)
      writer.add(ownEncoder.specialBefore());
    // What the former part could not be cut from comes in front of this one,
    // whose tokens are then others.
    if (openSince) {
      encoded.ids.clear();
      encoded.unit.begin = *openSince;
      encodePart(ownEncoder, encoded.unit, encoded.ids, encoded.ends_here);
    }
    openSince.reset();
    if (!encoded.ends_here)
      openSince = encoded.unit.begin;
    writer.add(encoded.ids);
    if (!encoded.unit.isLast)
      return;
    if (options.special)
      writer.add(ownEncoder.specialBehind());
    if (end)
      writer.add({&*end, 1});
    writer.endDocument();
  }

  const Options &options;
  const Tokenizer &tokenizer;
  ShardWriter writer;
  Encoder ownEncoder;
  std::optional<uint32_t> end;
  uint64_t done = 0;
  /// Inside a document that comes in parts; where its tokens that are not
  /// written yet begin.
  bool inDocument = false;
  std::optional<size_t> openSince;
};

} // namespace

void tokenize(const Options &options) {
  std::unique_ptr<Tokenizer> tokenizer;
  if (Status status = Tokenizer::open(options.tokenizer, tokenizer); !status)
    fail(ExitCode(status.exitCode()), status.message());
  Tokenization(options, *tokenizer).run();
}

} // namespace grt::data
