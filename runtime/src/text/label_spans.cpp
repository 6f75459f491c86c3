//===- label_spans.cpp - Which tokens of a text are labels ----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "text/label_spans.h"
#include "base/error.h"

#include <algorithm>
#include <optional>

namespace grt::text {
namespace {

/// Finds how many tokens of a text lie before a byte of it.
class TokenBoundaries {
public:
  TokenBoundaries(Encoder &encoder, std::string_view text,
                  std::span<const uint32_t> ids)
      : encoder(encoder), text(text), ids(ids) {}

  /// The number of tokens up to a byte, if one ends there.
  std::optional<size_t> at(uint64_t byte) {
    if (byte == text.size())
      return ids.size();
    // Inside a code point no token ends that a reader of text could see.
    if ((uint8_t(text[byte]) & 0xc0) == 0x80)
      return std::nullopt;
    prefix.clear();
    if (Status status = encoder.encode(text.substr(0, byte), false, prefix);
        !status)
      fail(ExitCode(status.exitCode()), status.message());
    if (prefix.size() > ids.size() ||
        !std::equal(prefix.begin(), prefix.end(), ids.begin()))
      return std::nullopt;
    return prefix.size();
  }
  /// The tokens that end at `byte` or before it, at the nearest boundary.
  size_t before(uint64_t byte) {
    for (;; --byte)
      if (std::optional<size_t> tokens = byte ? at(byte) : 0)
        return *tokens;
  }
  /// The tokens up to the nearest boundary at `byte` or behind it.
  size_t behind(uint64_t byte) {
    for (;; ++byte)
      if (std::optional<size_t> tokens = at(byte))
        return *tokens;
  }

private:
  Encoder &encoder;
  std::string_view text;
  std::span<const uint32_t> ids;
  std::vector<uint32_t> prefix;
};

} // namespace

std::vector<uint8_t> labelsOf(Encoder &encoder, std::string_view text,
                              std::span<const uint32_t> ids,
                              const std::vector<LabelSpan> &spans,
                              bool isExact) {
  std::vector<uint8_t> labels(ids.size(), 0);
  TokenBoundaries boundaries(encoder, text, ids);
  for (const LabelSpan &span : spans) {
    if (span.begin == span.end)
      continue;
    for (uint64_t byte : {span.begin, span.end})
      if (isExact && byte && !boundaries.at(byte))
        invalid("expected a token to end at byte " + str(byte) +
                " of the text, where a labelled span " +
                (byte == span.begin ? "begins" : "ends") +
                ": the tokens up to there are others when the text goes on");
    size_t first = boundaries.before(span.begin);
    size_t end = boundaries.behind(span.end);
    std::fill(labels.begin() + std::ptrdiff_t(first),
              labels.begin() + std::ptrdiff_t(end), uint8_t(1));
  }
  if (!labels.empty())
    labels.front() = 0;
  return labels;
}

} // namespace grt::text
