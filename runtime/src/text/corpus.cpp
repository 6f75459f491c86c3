//===- corpus.cpp - Documents of text files, encoded by threads -----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Threads encode units of about a MiB, and one takes them in the order of the
// text. No more units wait than threads can take up, so that memory is bounded
// whatever the text's length. A part of a long document is what it would be
// inside the whole, or its thread says that it is none (Encoder::encodePart)
// and it is encoded together with the next.
//
//===----------------------------------------------------------------------===//

#include "text/corpus.h"
#include "base/error.h"
#include "text/label_spans.h"
#include "text/unicode.h"

#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <deque>
#include <fcntl.h>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <sys/mman.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

namespace grt::text {

TokenSink::~TokenSink() = default;

bool parseDocuments(std::string_view name, Documents &documents) {
  static constexpr std::pair<std::string_view, Documents> names[] = {
      {"file", Documents::File},
      {"line", Documents::Line},
      {"jsonl", Documents::JsonLines}};
  for (const auto &[known, value] : names)
    if (known == name) {
      documents = value;
      return true;
    }
  return false;
}

TextFile::TextFile(const std::string &name) : path(name) {
  int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status{};
  if (descriptor < 0 || fstat(descriptor, &status) != 0) {
    int error = errno;
    if (descriptor >= 0)
      close(descriptor);
    fail(codeOfPath(error),
         "cannot open text file '" + path + "': " + strerror(error));
  }
  bool isRegular = S_ISREG(status.st_mode);
  bytes = isRegular ? size_t(status.st_size) : 0;
  void *mapped = nullptr;
  if (bytes)
    mapped = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, descriptor, 0);
  close(descriptor);
  if (!isRegular)
    invalid("text file '" + path + "' is not a regular file");
  if (bytes == 0)
    invalid("text file '" + path + "' is empty");
  if (mapped == MAP_FAILED)
    fail(ExitMemory, "cannot map text file '" + path + "'");
  data = static_cast<const char *>(mapped);
}

TextFile::~TextFile() { munmap(const_cast<char *>(data), bytes); }

namespace {

/// Keys of a line of JSON with spans of labels: whether these are exact, and
/// what errors call the line.
constexpr const char *exactKey = "exact", *sourceKey = "source";

/// Text that one thread encodes at once: whole lines of a file, or a part of a
/// file that is one document.
struct Unit {
  std::shared_ptr<const TextFile> file;
  Documents documents = Documents::File;
  size_t begin = 0, end = 0;
  /// Of a file that is one document: `isLast` if it ends here, and `isPart` if
  /// it is cut at all.
  bool isLast = true, isPart = false;
};

/// Bytes of a unit: enough that threads rarely wait, and little memory.
constexpr size_t unitBytes = 1 << 20;

void checkUtf8(const TextFile &file) {
  size_t at = firstInvalidByte(file.text());
  if (at == file.text().size())
    return;
  char found[8];
  std::snprintf(found, sizeof(found), "0x%02x",
                unsigned(uint8_t(file.text()[at])));
  invalid("text file '" + file.name() + "', byte " + str(at) +
          ": expected UTF-8, found " + found);
}

/// Cuts a file into units. Of a file that is one document only if it
/// `hasParts`. Throws if it is no UTF-8.
std::vector<Unit> unitsOf(std::shared_ptr<const TextFile> file,
                          Documents documents, bool hasParts) {
  checkUtf8(*file);
  std::vector<Unit> units;
  std::string_view text = file->text();
  bool isWhole = documents == Documents::File;
  // A mark of the byte order is no text.
  constexpr std::string_view mark = "\xef\xbb\xbf";
  size_t begin = text.starts_with(mark) ? mark.size() : 0;
  while (begin < text.size()) {
    size_t end = text.size();
    if (isWhole && hasParts) {
      end = nextCut(text, std::min(begin + unitBytes, text.size()));
    } else if (!isWhole && begin + unitBytes < text.size()) {
      size_t line = text.find('\n', begin + unitBytes);
      end = line == std::string_view::npos ? text.size() : line + 1;
    }
    bool isCut = isWhole && (begin > mark.size() || end < text.size());
    units.push_back({file, documents, begin, end, end == text.size(), isCut});
    begin = end;
  }
  return units;
}

/// Calls `use` with every document of lines, and where in the file it begins.
/// Empty lines are none.
void eachLine(
    const Unit &unit,
    const std::function<void(std::string_view line, size_t at)> &use) {
  std::string_view text = unit.file->text();
  for (size_t at = unit.begin; at < unit.end;) {
    size_t end = std::min(text.find('\n', at), unit.end);
    std::string_view line = text.substr(at, end - at);
    if (line.ends_with('\r'))
      line.remove_suffix(1);
    if (!line.empty())
      use(line, at);
    at = end + 1;
  }
}

/// A document of a line of JSON.
struct LineOfJson {
  std::string text;
  std::vector<LabelSpan> labels;
  /// True if tokens must end where spans begin and end.
  bool isExact = false;
  /// Origin of the text, for errors; empty: this line.
  std::string source;
};

/// Reads a line of JSON: the text under the key of texts, and the spans under
/// that of labels if there is one. Throws what is wrong behind `place`.
LineOfJson readLineOfJson(std::string_view line, const CorpusOptions &options,
                          const std::string &place) {
  nlohmann::json value = nlohmann::json::parse(line, nullptr, false);
  if (!value.is_object())
    invalid(place + "expected a JSON object a line");
  auto found = value.find(options.key);
  if (found == value.end() || !found->is_string())
    invalid(place + "expected an object with a text under the key '" +
            options.key + "'" +
            (value.contains("messages")
                 ? ", found 'messages': python3 -m galvatron.chat makes shards "
                   "of conversations"
                 : ""));
  LineOfJson result;
  result.text = found->get<std::string>();
  if (options.labelsKey.empty())
    return result;
  auto spans = value.find(options.labelsKey);
  if (spans == value.end() || !spans->is_array())
    invalid(place + "expected a list of [begin, end] under the key '" +
            options.labelsKey + "'");
  uint64_t before = 0;
  for (const nlohmann::json &span : *spans) {
    auto isByte = [&](size_t i) { return span[i].is_number_unsigned(); };
    if (!span.is_array() || span.size() != 2 || !isByte(0) || !isByte(1))
      invalid(place + "expected [begin, end], bytes of the text, found " +
              span.dump());
    LabelSpan read{span[0].get<uint64_t>(), span[1].get<uint64_t>()};
    if (read.begin < before || read.end < read.begin ||
        read.end > result.text.size())
      invalid(place + "expected spans in order and in the text's " +
              str(result.text.size()) + " bytes, found " + span.dump());
    before = read.end;
    result.labels.push_back(read);
  }
  if (auto source = value.find(sourceKey); source != value.end()) {
    if (!source->is_string())
      invalid(place + "'" + sourceKey + "': expected a text, found " +
              source->dump());
    result.source = source->get<std::string>();
  }
  if (auto exact = value.find(exactKey); exact != value.end()) {
    if (!exact->is_boolean())
      invalid(place + "'" + exactKey + "': expected true or false, found " +
              exact->dump());
    result.isExact = exact->get<bool>();
  }
  return result;
}

/// The tokens of a unit.
struct Encoded {
  Unit unit;
  std::vector<uint32_t> ids;
  std::vector<uint8_t> labels; ///< of each token; empty: all count
  std::vector<size_t> ends;    ///< of documents among them
  bool endsHere = true;        ///< of a part: whether a token ends at its end
  Status status;
  bool isDone = false;
};

class Corpus {
public:
  Corpus(const CorpusOptions &options, const Tokenizer &tokenizer,
         TokenSink &sink)
      : options(options), tokenizer(tokenizer), sink(sink),
        ownEncoder(tokenizer) {
    if (!options.labelsKey.empty() && options.special)
      invalid("the tokenizer's own special tokens are no part of a text with "
              "spans of labels");
    if (options.end.empty())
      return;
    end = tokenizer.find(options.end);
    if (!end)
      invalid("--end-token: expected a token of the tokenizer, found '" +
              options.end + "'");
  }

  void run(const std::vector<std::string> &paths) {
    unsigned threads = options.threads
                           ? options.threads
                           : std::max(1u, std::thread::hardware_concurrency());
    Workers workers(*this, threads);
    // Enough that no thread waits while one unit is taken.
    const size_t most = 4 * size_t(threads);
    for (const std::string &path : paths) {
      auto file = std::make_shared<const TextFile>(path);
      for (Unit &unit :
           unitsOf(file, documentsOf(path), tokenizer.hasParts())) {
        workers.push(std::move(unit));
        while (workers.waiting() >= most)
          take(workers);
      }
    }
    while (workers.waiting())
      take(workers);
  }

private:
  /// Threads that encode what is pushed; results come in the same order.
  class Workers {
  public:
    Workers(const Corpus &owner, unsigned count) : owner(owner) {
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

    const Corpus &owner;
    std::vector<std::thread> threads;
    std::mutex mutex;
    std::condition_variable wake;
    std::deque<std::shared_ptr<Encoded>> all, todo;
    bool isOver = false;
  };

  Documents documentsOf(const std::string &path) const {
    if (options.documents != Documents::BySuffix)
      return options.documents;
    return path.ends_with(".jsonl") ? Documents::JsonLines : Documents::File;
  }

  void encode(Encoder &encoder, Encoded &to) const {
    const Unit &unit = to.unit;
    std::string_view text = unit.file->text();
    auto placeOf = [&](size_t at) {
      return "text file '" + unit.file->name() + "', document at byte " +
             str(at);
    };
    auto one = [&](std::string_view document, size_t at) {
      failAt(placeOf(at), encoder.encode(document, options.special, to.ids));
      if (end)
        to.ids.push_back(*end);
      to.ends.push_back(to.ids.size());
    };
    if (unit.documents == Documents::Line)
      return eachLine(unit, one);
    if (unit.documents == Documents::JsonLines)
      return eachLine(unit, [&](std::string_view line, size_t at) {
        LineOfJson document = readLineOfJson(line, options,
                                             "text file '" + unit.file->name() +
                                                 "', byte " + str(at) + ": ");
        one(document.text, at);
        if (!options.labelsKey.empty())
          addLabels(encoder, document,
                    document.source.empty() ? placeOf(at) : document.source,
                    to);
      });
    if (!unit.isPart)
      return one(text.substr(unit.begin, unit.end - unit.begin), unit.begin);
    encodePart(encoder, unit, to.ids, to.endsHere);
  }

  static void failAt(const std::string &place, const Status &status) {
    if (!status)
      fail(ExitCode(status.exitCode()), place + ": " + status.message());
  }

  /// The labels of the last document of `to`.
  void addLabels(Encoder &encoder, const LineOfJson &document,
                 const std::string &place, Encoded &to) const {
    size_t begin = to.ends.size() > 1 ? to.ends[to.ends.size() - 2] : 0;
    std::span<const uint32_t> ids(to.ids.data() + begin,
                                  to.ids.size() - begin - (end ? 1 : 0));
    std::vector<uint8_t> labels;
    failAt(place, guarded([&] {
             labels = labelsOf(encoder, document.text, ids, document.labels,
                               document.isExact);
           }));
    // An answer that goes to the end of the text is learned with its end.
    bool toTheEnd = !document.labels.empty() &&
                    document.labels.back().end == document.text.size();
    if (end)
      labels.push_back(toTheEnd);
    to.labels.insert(to.labels.end(), labels.begin(), labels.end());
  }

  void encodePart(Encoder &encoder, const Unit &unit,
                  std::vector<uint32_t> &ids, bool &endsHere) const {
    Status status = encoder.encodePart(unit.file->text(), unit.begin, unit.end,
                                       ids, endsHere);
    if (!status)
      fail(ExitCode(status.exitCode()),
           "text file '" + unit.file->name() + "': " + status.message());
  }

  /// Gives the oldest result on.
  void take(Workers &workers) {
    std::shared_ptr<Encoded> encoded = workers.pop();
    // A thread's tokens and error do not count if the part before does not end
    // with a word: takePart encodes both parts anew.
    bool counts = !encoded->unit.isPart || !openSince;
    if (counts && !encoded->status)
      fail(ExitCode(encoded->status.exitCode()), encoded->status.message());
    done += encoded->unit.end - encoded->unit.begin;
    if (encoded->unit.isPart)
      takePart(*encoded);
    else
      takeDocuments(*encoded);
    sink.progress(done);
  }

  void takeDocuments(const Encoded &encoded) {
    size_t begin = 0;
    for (size_t end : encoded.ends) {
      std::span<const uint8_t> labels(encoded.labels);
      sink.add({encoded.ids.data() + begin, end - begin},
               labels.empty() ? labels : labels.subspan(begin, end - begin));
      sink.endDocument();
      begin = end;
    }
  }

  void takePart(Encoded &encoded) {
    const bool isFirst = !inDocument;
    inDocument = !encoded.unit.isLast;
    if (options.special && isFirst)
      sink.add(ownEncoder.specialBefore(), {});
    // The uncut rest of the former part comes in front of this one, whose
    // tokens are then others.
    if (openSince) {
      encoded.ids.clear();
      encoded.unit.begin = *openSince;
      encodePart(ownEncoder, encoded.unit, encoded.ids, encoded.endsHere);
    }
    openSince.reset();
    if (!encoded.endsHere)
      openSince = encoded.unit.begin;
    sink.add(encoded.ids, {});
    if (!encoded.unit.isLast)
      return;
    if (options.special)
      sink.add(ownEncoder.specialBehind(), {});
    if (end)
      sink.add({&*end, 1}, {});
    sink.endDocument();
  }

  const CorpusOptions &options;
  const Tokenizer &tokenizer;
  TokenSink &sink;
  Encoder ownEncoder;
  std::optional<uint32_t> end;
  uint64_t done = 0;
  /// Inside a document that comes in parts; where its tokens that are not
  /// written yet begin.
  bool inDocument = false;
  std::optional<size_t> openSince;
};

} // namespace

void encodeFiles(const Tokenizer &tokenizer,
                 const std::vector<std::string> &paths,
                 const CorpusOptions &options, TokenSink &sink) {
  Corpus(options, tokenizer, sink).run(paths);
}

} // namespace grt::text
