//===- session_predict.cpp - What follows given tokens --------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A prediction is the forward pass of an evaluation on a batch of which all
// samples are the prompt; the kernel of the loss leaves the likeliest tokens
// where labels are.
//
//===----------------------------------------------------------------------===//

#include "core/init.h"
#include "session/session_implementation.h"

#include <algorithm>
#include <cstring>

namespace grt {
namespace {

/// One sample of a mask: ones, then zeros.
std::vector<char> maskOf(const Datum &datum, size_t ones) {
  std::vector<double> values(size_t(datum.elements()));
  std::fill_n(values.begin(), ones, 1);
  std::vector<char> sample(datum.bytesPerSample);
  storeValues(datum, values, sample.data());
  return sample;
}

/// One sample of tokens, filled up with padding.
std::vector<char> tokensOf(const Datum &datum, std::span<const int32_t> tokens,
                           int32_t padding) {
  std::vector<int32_t> values(size_t(datum.elements()), padding);
  std::copy(tokens.begin(), tokens.end(), values.begin());
  std::vector<char> sample(datum.bytesPerSample);
  std::memcpy(sample.data(), values.data(), sample.size());
  return sample;
}

void checkLength(const char *what, std::span<const int32_t> tokens,
                 const Datum &datum) {
  if (tokens.empty() || tokens.size() > size_t(datum.elements()))
    invalid("prediction: expected 1 to " + str(datum.elements()) + " tokens" +
            what + ", found " + str(tokens.size()));
}

/// Asks for the logits of some rows while it lives.
class ScoredRows {
public:
  ScoredRows(PassInput &input, int64_t first, int64_t count) : input(input) {
    input.scoredToken = first;
    input.scoredRows = count;
  }
  ~ScoredRows() {
    input.scoredToken = -1;
    input.scoredRows = 1;
  }
  ScoredRows(const ScoredRows &) = delete;
  ScoredRows &operator=(const ScoredRows &) = delete;

private:
  PassInput &input;
};

} // namespace

void Session::Implementation::setPrompt(std::span<const int32_t> tokens,
                                        const EncoderPrompt *encoder) {
  const Manifest &manifest = program->manifest();
  if (!manifest.predictsTokens())
    invalid("prediction: expected a program that reads tokens, or an encoder's "
            "and a decoder's, and as many labels, and nothing else");
  const Datum *decoder = manifest.decoderTokens();
  if (!decoder != !encoder)
    invalid(std::string("prediction: expected ") +
            (decoder ? "tokens of an encoder, which the program has"
                     : "no tokens of an encoder, which the program lacks"));
  if (encoder)
    checkLength(" of the encoder", encoder->tokens, *manifest.tokens());
  checkLength(decoder ? " of the decoder" : "", tokens,
              decoder ? *decoder : *manifest.tokens());
  DataBatch batch;
  for (const Datum &datum : manifest.data) {
    std::vector<char> sample(datum.bytesPerSample);
    if (&datum == decoder || (!decoder && &datum == manifest.tokens()))
      // What is behind them is seen by none of their predictions.
      sample = tokensOf(datum, tokens, /*padding=*/0);
    else if (&datum == manifest.tokens())
      sample = tokensOf(datum, encoder->tokens, encoder->padding);
    else if (datum.kind == "mask")
      sample = maskOf(datum, encoder->tokens.size());
    std::vector<char> &all = batch.emplace_back();
    for (int64_t i = 0; i < manifest.batch; ++i)
      all.insert(all.end(), sample.begin(), sample.end());
  }
  setBatch(batch, std::nullopt);
  set.mode = GRT_MODE_GENERATE;
}

void Session::Implementation::sharePrediction(std::vector<int32_t> &tokens,
                                              size_t count) {
  if (isAlone())
    return;
  // The rank that has them is the first of the last layer's; all others send
  // numbers that are no tokens.
  const RankMessages<int32_t> all = gather<int32_t>(
      MessageKind::Predictions, count, [&](Rank &rank, std::span<int32_t> to) {
        if (rank.isFirstOfLastLayer())
          std::copy(tokens.begin(), tokens.end(), to.begin());
        else
          std::fill(to.begin(), to.end(), -1);
      });
  for (size_t rank = 0; count && rank < all.ranks(); ++rank)
    if (all[rank] >= 0)
      return tokens.assign(all.of(rank).begin(), all.of(rank).end());
}

Status Session::predict(std::span<const int32_t> tokens,
                        std::vector<int32_t> &result,
                        const EncoderPrompt *encoder) {
  return guarded([&] {
    impl->setPrompt(tokens, encoder);
    std::vector<int32_t> predicted(tokens.size());
    impl->runPass([&](Rank &rank) {
      rank.evaluate(true);
      if (rank.isFirstOfLastLayer() && !rank.readLabels(0, predicted))
        fail("the program's last layer reads no labels");
    });
    for (const std::unique_ptr<Rank> &rank : impl->local->ranks)
      if (rank->isFirstOfLastLayer())
        result = predicted;
    impl->sharePrediction(result, tokens.size());
    impl->set.batch.reset();
  });
}

namespace {

/// Which part of a row of scores a rank has.
struct ScoresPart {
  uint64_t first = 0, count = 0;
};

} // namespace

void Session::Implementation::shareScores(std::vector<double> &result,
                                          size_t rows) {
  const auto words = size_t(program->vocabularySize());
  result.assign(rows * words, 0);
  auto take = [&](const ScoresPart &part, const double *values) {
    if (part.first <= words && part.count <= words - part.first)
      for (size_t row = 0; row < rows; ++row)
        std::copy_n(values + row * part.count, part.count,
                    result.begin() + std::ptrdiff_t(row * words + part.first));
  };
  auto partOf = [](const Rank &rank) {
    return ScoresPart{uint64_t(rank.scores().first), rank.scores().count};
  };
  if (isAlone()) {
    for (const std::unique_ptr<Rank> &rank : local->ranks)
      take(partOf(*rank), rank->scores().values.data());
    return;
  }
  const RankMessages<ScoresPart> parts = gather<ScoresPart>(
      MessageKind::ScoresPart, [&](Rank &rank) { return partOf(rank); });
  size_t most = 0;
  for (const ScoresPart &part : parts.values())
    most = std::max<size_t>(most, rows * part.count);
  const RankMessages<double> all = gather<double>(
      MessageKind::Scores, most, [&](Rank &rank, std::span<double> to) {
        const std::vector<double> &values = rank.scores().values;
        std::copy_n(values.begin(), std::min(values.size(), to.size()),
                    to.begin());
      });
  for (size_t rank = 0; rank < all.ranks(); ++rank)
    take(parts[rank], all.of(rank).data());
}

Status Session::predictScores(std::span<const int32_t> tokens,
                              std::vector<double> &result,
                              const EncoderPrompt *encoder) {
  return guarded([&] {
    impl->setPrompt(tokens, encoder);
    ScoredRows scored(impl->set, int64_t(tokens.size()) - 1, 1);
    impl->runPass([](Rank &rank) { rank.evaluate(true); });
    impl->shareScores(result, 1);
    impl->set.batch.reset();
  });
}

void Session::Implementation::takeSources(std::span<const RowSource> sources) {
  const Manifest &manifest = program->manifest();
  const int64_t rows = program->cacheRows();
  if (!sources.empty() && !program->cachesSources())
    invalid("decoding: expected no source of a text, which the program has no "
            "encoder for");
  if (int64_t(sources.size()) > manifest.batch)
    invalid("decoding: expected at most " + str(manifest.batch) +
            " sources, found " + str(sources.size()));
  std::vector<int32_t> lengths = sourceLengths;
  lengths.resize(size_t(rows));
  std::vector<bool> begins(size_t(rows), false);
  for (const RowSource &source : sources) {
    if (source.row < 0 || source.row >= rows || begins[size_t(source.row)])
      invalid("decoding: expected sources of rows below " + str(rows) +
              ", one of each, found row " + str(source.row));
    checkLength(" of the encoder", source.text.tokens, *manifest.tokens());
    begins[size_t(source.row)] = true;
    lengths[size_t(source.row)] = int32_t(source.text.tokens.size());
  }
  sourceLengths = lengths;
}

std::vector<char>
Session::Implementation::valuesOf(const Datum &datum,
                                  std::span<const RowToken> tokens,
                                  std::span<const RowSource> sources) const {
  const Manifest &manifest = program->manifest();
  const bool hasSources = program->cachesSources();
  // Samples of no token, and of no source, are those of no row.
  std::vector<int32_t> values(size_t(manifest.batch),
                              mayHaveNoRow(datum) ? -1 : 0);
  if (hasSources && (&datum == manifest.tokens() || datum.kind == "mask")) {
    std::vector<char> all;
    for (const RowSource &source : sources) {
      const std::vector<char> sample =
          datum.kind == "mask"
              ? maskOf(datum, source.text.tokens.size())
              : tokensOf(datum, source.text.tokens, source.text.padding);
      all.insert(all.end(), sample.begin(), sample.end());
    }
    all.resize(size_t(manifest.batch) * datum.bytesPerSample);
    return all;
  }
  if (datum.kind == "source_rows")
    for (size_t i = 0; i < sources.size(); ++i)
      values[i] = sources[i].row;
  for (size_t i = 0; i < tokens.size(); ++i)
    if (datum.kind == "cache_rows")
      values[i] = tokens[i].row;
    else if (datum.kind == "source_lengths")
      values[i] = sourceLengths[size_t(tokens[i].row)];
    else if (datum.kind == "positions")
      values[i] = tokens[i].position;
    else if (datum.kind == "tokens")
      values[i] = tokens[i].token;
  const auto *bytes = reinterpret_cast<const char *>(values.data());
  return {bytes, bytes + values.size() * sizeof(int32_t)};
}

void Session::Implementation::setRowTokens(std::span<const RowToken> tokens,
                                           std::span<const RowSource> sources) {
  const Manifest &manifest = program->manifest();
  const int64_t rows = program->cacheRows(), length = program->cacheLength();
  if (!rows)
    invalid("decoding: expected a program that keeps keys and values, "
            "galvatron-compile --generate makes one");
  if (tokens.empty() || int64_t(tokens.size()) > manifest.batch)
    invalid("decoding: expected 1 to " + str(manifest.batch) +
            " tokens, found " + str(tokens.size()));
  for (const RowToken &one : tokens)
    if (one.row < 0 || one.row >= rows || one.position < 0 ||
        one.position >= length || one.token < 0 ||
        one.token >= program->vocabularySize())
      invalid("decoding: expected rows below " + str(rows) +
              ", positions below " + str(length) + " and tokens below " +
              str(program->vocabularySize()) + ", found row " + str(one.row) +
              ", position " + str(one.position) + " and token " +
              str(one.token));
  takeSources(sources);
  for (const RowToken &one : tokens)
    if (program->cachesSources() && !sourceLengths[size_t(one.row)])
      invalid("decoding: expected the source of the text in row " +
              str(one.row) + " with its first token, found none");
  DataBatch batch;
  for (const Datum &datum : manifest.data)
    batch.push_back(valuesOf(datum, tokens, sources));
  setBatch(batch, std::nullopt);
  set.mode = GRT_MODE_GENERATE;
  set.textsBegin = !sources.empty();
}

Status Session::decode(std::span<const RowToken> tokens,
                       std::vector<int32_t> &result,
                       std::vector<double> *scores,
                       std::span<const RowSource> sources) {
  return guarded([&] {
    impl->setRowTokens(tokens, sources);
    ScoredRows scored(impl->set, scores ? 0 : -1, int64_t(tokens.size()));
    std::vector<int32_t> predicted(tokens.size());
    impl->runPass([&](Rank &rank) {
      rank.evaluate(true);
      if (rank.isFirstOfLastLayer() && !rank.readLabels(0, predicted))
        fail("the program's last layer reads no labels");
    });
    result = predicted;
    impl->sharePrediction(result, tokens.size());
    if (scores)
      impl->shareScores(*scores, tokens.size());
    impl->set.batch.reset();
  });
}

} // namespace grt
