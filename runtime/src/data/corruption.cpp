//===- corruption.cpp - Samples made from rows of tokens ------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "data/corruption.h"
#include "base/error.h"
#include "base/values.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace grt {
namespace {

/// Streams of a sample's draws. Files in use depend on these numbers.
enum DrawOf : uint32_t {
  WhichAreMasked,
  WhatMaskedOnesBecome,
  WhichWord,
  WhereSpansEnd,
  WhereGapsEnd
};

/// Says of items, one after the other, whether they are among those chosen:
/// exactly `wanted` of `items`, all choices as likely (Knuth's algorithm S).
class Choice {
public:
  Choice(const SampleDraws &draws, DrawOf stream, uint64_t items,
         uint64_t wanted)
      : draws(draws), stream(stream), left(items), wanted(wanted) {}
  /// `index` is that of the draw.
  bool takes(uint64_t index) {
    bool taken = draws.below(left--, stream, index) < wanted;
    wanted -= taken;
    return taken;
  }

private:
  const SampleDraws &draws;
  DrawOf stream;
  uint64_t left, wanted;
};

/// A number of tokens as the nearest whole one; halves go to the even one.
uint64_t rounded(double tokens) { return uint64_t(std::nearbyint(tokens)); }

void store(const std::vector<int32_t> &values, char *to) {
  if (to)
    std::memcpy(to, values.data(), values.size() * sizeof(int32_t));
}

} // namespace

SampleMaker::~SampleMaker() = default;

SampleMaker::SampleMaker(const Corruption &corruption,
                         const std::vector<Datum> &given, size_t main)
    : corruption(corruption), data(given), made(given.size()), tokens(main),
      labels(given.size()) {
  const Datum &read = data[tokens];
  for (size_t i = 0; i < data.size(); ++i)
    if (data[i].kind == "labels")
      labels = i;
  if (read.kind != "tokens" || read.shape.size() != 1 ||
      labels == data.size() || data[labels].shape.size() != 1)
    invalid("corrupted tokens: expected a program that reads a sequence of "
            "tokens and has labels for a sequence");
  made[labels] = true;
  if (!(corruption.rate > 0 && corruption.rate <= Corruption::largestRate))
    invalid("rate of corrupted tokens: expected a number above 0, at most " +
            std::to_string(Corruption::largestRate) + ", found " +
            std::to_string(corruption.rate));
}

std::string SampleMaker::facts() const {
  std::string text = name();
  auto add = [&](auto value) { text += " " + std::to_string(value); };
  add(corruption.rate);
  add(corruption.spanLength);
  for (int64_t number :
       {int64_t(corruption.mask), corruption.words, int64_t(corruption.padding),
        int64_t(corruption.end), int64_t(corruption.start)})
    add(number);
  for (const std::vector<int32_t> &list :
       {corruption.special, corruption.sentinels, corruption.before,
        corruption.behind}) {
    text += ";";
    for (int32_t token : list)
      add(token);
  }
  return text;
}

namespace {

/// A token that the program must have.
void checkToken(int64_t token, const Datum &datum, const char *what) {
  if (token < 0 || token >= datum.below)
    invalid(std::string(what) + ": expected a token below the vocabulary of " +
            str(datum.below) + ", found " + str(token));
}

/// BERT's: of those that are chosen 8 of 10 are masked, one is a word that is
/// drawn, and one stays.
class MaskedTokens : public SampleMaker {
public:
  MaskedTokens(const Corruption &corruption, const std::vector<Datum> &data,
               size_t main, const std::vector<bool> &hasFiles)
      : SampleMaker(corruption, data, main) {
    const Datum &read = data[tokens];
    if (data[labels].shape != read.shape)
      invalid("masked tokens: expected as many labels as tokens, " +
              str(read.elements()) + ", found " + str(data[labels].elements()));
    checkToken(corruption.mask, read, "masked tokens: the mask");
    if (corruption.words > std::min(read.below, data[labels].below))
      invalid("masked tokens: words below " + str(corruption.words) +
              " are drawn, expected at most the vocabulary of " +
              str(std::min(read.below, data[labels].below)));
    for (int32_t token : corruption.special) {
      checkToken(token, read, "masked tokens: a special one");
      isSpecial.resize(std::max(isSpecial.size(), size_t(token) + 1));
      isSpecial[size_t(token)] = 1;
      specialWords += token < corruption.words;
    }
    if (corruption.words <= specialWords)
      invalid("masked tokens: all of " + str(corruption.words) +
              " tokens are special, none is left to be drawn");
    for (size_t i = 0; i < data.size(); ++i)
      made[i] = i == tokens || i == labels ||
                ((data[i].kind == "mask" || data[i].kind == "token_types") &&
                 !hasFiles[i]);
    const auto all = uint64_t(read.elements());
    const uint64_t frame = corruption.before.size() + corruption.behind.size();
    for (const std::vector<int32_t> *side :
         {&corruption.before, &corruption.behind})
      for (int32_t token : *side)
        checkToken(token, read, "masked tokens: what is around a sample");
    if (frame >= all)
      invalid("masked tokens: " + str(frame) + " tokens are around a sample, " +
              "expected less than the " + str(all) + " of a sequence");
    length = all - frame;
    wanted = std::max(rounded(double(all) * corruption.rate), uint64_t(1));
  }

  const char *name() const override { return "masked tokens"; }
  std::optional<uint64_t> counted() const override {
    if (corruption.special.empty())
      return std::min(wanted, length);
    return std::nullopt;
  }
  uint64_t counted(std::span<const int32_t> row) const override {
    // A row of special tokens has none to mask.
    return std::min(wanted, ordinary(row));
  }

  void make(const SampleDraws &draws, std::span<const int32_t> row,
            std::span<char *const> to) const override {
    for (size_t i = 0; i < data.size(); ++i)
      if (made[i] && to[i] && i != tokens && i != labels)
        storeValues(data[i],
                    std::vector<double>(size_t(data[i].elements()),
                                        data[i].kind == "mask"),
                    to[i]);
    if (!to[tokens] && !to[labels])
      return;
    std::vector<int32_t> seen = corruption.before;
    seen.insert(seen.end(), row.begin(), row.end());
    seen.insert(seen.end(), corruption.behind.begin(), corruption.behind.end());
    std::vector<int32_t> right(seen.size(), -1);
    const uint64_t all = ordinary(row);
    Choice choice(draws, WhichAreMasked, all, std::min(wanted, all));
    for (size_t i = 0; i < row.size(); ++i) {
      const size_t position = corruption.before.size() + i;
      if (special(row[i]) || !choice.takes(position))
        continue;
      right[position] = row[i];
      uint64_t what = draws.below(10, WhatMaskedOnesBecome, position);
      if (what < 8)
        seen[position] = corruption.mask;
      else if (what == 8)
        seen[position] = word(draws.below(
            uint64_t(corruption.words - specialWords), WhichWord, position));
    }
    store(seen, to[tokens]);
    store(right, to[labels]);
  }

private:
  bool special(int32_t token) const {
    return size_t(token) < isSpecial.size() && isSpecial[size_t(token)];
  }
  uint64_t ordinary(std::span<const int32_t> row) const {
    uint64_t count = row.size();
    for (int32_t token : row)
      count -= special(token);
    return count;
  }
  /// The word of that number among those that are not special.
  int32_t word(uint64_t number) const {
    auto token = int32_t(number);
    for (int32_t left : corruption.special)
      token += left <= token;
    return token;
  }

  uint64_t wanted = 0;
  int64_t specialWords = 0;
  std::vector<uint8_t> isSpecial; ///< by token, up to the last that is
};

/// T5's: a sample has tokens enough to fill what the encoder reads when each of
/// its spans is one sentinel; gap, span, gap, span, .. to its end. The decoder
/// writes each sentinel and behind it the span. Both are closed by the end.
class CorruptedSpans : public SampleMaker {
public:
  CorruptedSpans(const Corruption &corruption, const std::vector<Datum> &data,
                 size_t main)
      : SampleMaker(corruption, data, main), decoder(data.size()) {
    for (size_t i = 0; i < data.size(); ++i)
      if (i != tokens && data[i].kind == "tokens")
        decoder = i;
    if (decoder == data.size() || data[decoder].shape != data[labels].shape)
      invalid("corrupted spans: expected a program with tokens of a decoder, "
              "and as many labels");
    const Datum &read = data[tokens];
    if (!(corruption.spanLength >= 1))
      invalid("corrupted spans: expected a mean length of at least 1, found " +
              std::to_string(corruption.spanLength));
    checkToken(corruption.padding, read, "corrupted spans: the padding");
    checkToken(corruption.end, read, "corrupted spans: the end");
    checkToken(corruption.start, read, "corrupted spans: the start");
    const uint64_t encoder = uint64_t(read.elements());
    if (encoder < 4)
      invalid("corrupted spans: expected sequences of at least 4 tokens, "
              "found " +
              str(encoder));
    length = encoder - 1;
    while (inputs(length + 1) <= encoder)
      ++length;
    for (size_t i = 0; i < data.size(); ++i) {
      bool isMask = data[i].kind == "mask";
      made[i] = i == tokens || i == decoder || i == labels || isMask;
      if (isMask && data[i].shape != read.shape)
        invalid("corrupted spans: expected a mask of " + str(encoder) +
                " values, found " + str(data[i].elements()));
    }
    target = lost(length) + spans(length) + 1;
    const uint64_t room = uint64_t(data[labels].elements());
    if (target > room)
      invalid("corrupted spans: of samples of " + str(length) +
              " tokens the decoder writes " + str(target) +
              ", the program's writes " + str(room) +
              "; galvatron-compile --decoder-seq-len=" + str(target) +
              " has room for them");
    if (spans(length) > corruption.sentinels.size())
      invalid("corrupted spans: samples have " + str(spans(length)) +
              " spans, found " + str(corruption.sentinels.size()) +
              " tokens that stand for one");
    for (uint64_t i = 0; i < spans(length); ++i) {
      int32_t token = corruption.sentinels[i];
      checkToken(token, read, "corrupted spans: a sentinel");
      if (token == corruption.padding || token == corruption.end)
        invalid("corrupted spans: token " + str(token) + " stands for span " +
                str(i) + ", and for the end or padding");
    }
    // Targets hold the sentinels and tokens of the text, so encoder, decoder
    // and labels have one vocabulary.
    if (data[labels].below != read.below || data[decoder].below != read.below)
      invalid(
          "corrupted spans: expected one vocabulary of encoder and decoder");
  }

  const char *name() const override { return "corrupted spans"; }
  std::optional<uint64_t> counted() const override { return target; }
  uint64_t counted(std::span<const int32_t>) const override { return target; }

  void make(const SampleDraws &draws, std::span<const int32_t> row,
            std::span<char *const> to) const override {
    const std::vector<uint64_t> gone =
        parts(lost(length), draws, WhereSpansEnd);
    const std::vector<uint64_t> left =
        parts(length - lost(length), draws, WhereGapsEnd);
    std::vector<int32_t> seen, right;
    const int32_t *at = row.data();
    for (size_t i = 0; i < gone.size(); ++i) {
      seen.insert(seen.end(), at, at + left[i]);
      at += left[i];
      seen.push_back(corruption.sentinels[i]);
      right.push_back(corruption.sentinels[i]);
      right.insert(right.end(), at, at + gone[i]);
      at += gone[i];
    }
    seen.push_back(corruption.end);
    right.push_back(corruption.end);
    const size_t encoder = size_t(data[tokens].elements()), read = seen.size();
    seen.resize(encoder, corruption.padding);
    store(seen, to[tokens]);
    // The decoder reads its own targets, shifted by one.
    std::vector<int32_t> before = right;
    before.insert(before.begin(), corruption.start);
    before.pop_back();
    before.resize(size_t(data[decoder].elements()), corruption.padding);
    store(before, to[decoder]);
    right.resize(size_t(data[labels].elements()), -1);
    store(right, to[labels]);
    std::vector<double> mask(encoder, 0);
    std::fill_n(mask.begin(), read, 1);
    for (size_t i = 0; i < data.size(); ++i)
      if (data[i].kind == "mask" && to[i])
        storeValues(data[i], mask, to[i]);
  }

private:
  /// Tokens of spans, of so many; at least one is, and one is not.
  uint64_t lost(uint64_t tokens) const {
    return std::clamp(rounded(double(tokens) * corruption.rate), uint64_t(1),
                      tokens - 1);
  }
  uint64_t spans(uint64_t tokens) const {
    uint64_t most = std::min(lost(tokens), tokens - lost(tokens));
    return std::clamp(rounded(double(lost(tokens)) / corruption.spanLength),
                      uint64_t(1), most);
  }
  /// Length of the encoder's input that so many tokens give, with the end.
  uint64_t inputs(uint64_t tokens) const {
    return tokens - lost(tokens) + spans(tokens) + 1;
  }
  /// Cuts so many tokens into as many parts as a sample has spans, none empty;
  /// all ways of it are as likely.
  std::vector<uint64_t> parts(uint64_t tokens, const SampleDraws &draws,
                              DrawOf stream) const {
    std::vector<uint64_t> lengths = {1};
    Choice choice(draws, stream, tokens - 1, spans(length) - 1);
    for (uint64_t i = 0; i + 1 < tokens; ++i) {
      if (choice.takes(i))
        lengths.push_back(0);
      ++lengths.back();
    }
    return lengths;
  }
  size_t decoder;
  uint64_t target = 0; ///< tokens that the decoder writes
};

} // namespace

std::unique_ptr<SampleMaker>
makeSampleMaker(const Corruption &corruption, const std::vector<Datum> &data,
                size_t main, const std::vector<bool> &hasFiles) {
  switch (corruption.kind) {
  case Corruption::Kind::None:
    return nullptr;
  case Corruption::Kind::Tokens:
    return std::make_unique<MaskedTokens>(corruption, data, main, hasFiles);
  case Corruption::Kind::Spans:
    return std::make_unique<CorruptedSpans>(corruption, data, main);
  }
  return nullptr;
}

} // namespace grt
