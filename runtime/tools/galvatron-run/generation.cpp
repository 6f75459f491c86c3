//===- generation.cpp - Texts that a program with kept keys writes --------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "generation.h"

#include "base/error.h"

#include <chrono>
#include <span>
#include <string>

using namespace grt;

namespace {

/// The text that a row of the cache has at the moment.
struct Row {
  size_t text = 0;
  bool isBusy = false;
  std::vector<int32_t> tokens; ///< the prompt's and those behind it
  size_t computed = 0;         ///< of these, whose keys are kept
};

/// The texts of one call.
class Writer {
public:
  Writer(const std::vector<BegunText> &texts, const GenerationRules &rules,
         Session &session, const TextEnd &ended, GenerationCost &cost)
      : texts(texts), rules(rules), session(session), ended(ended), cost(cost),
        hasSources(session.program().cachesSources()),
        length(size_t(session.program().cacheLength())),
        rows(size_t(session.program().cacheRows())) {}

  Status run() {
    for (size_t i = 0; i < texts.size(); ++i)
      if (texts[i].tokens.empty() || texts[i].tokens.size() >= most())
        return Status(ExitInvalid,
                      "prompt " + std::to_string(i + 1) + ": expected 1 to " +
                          std::to_string(most() - 1) + " tokens of the " +
                          std::to_string(length) +
                          " that the program keeps, found " +
                          std::to_string(texts[i].tokens.size()));
    for (Row &row : rows)
      fill(row);
    while (choose())
      if (Status status = pass(); !status)
        return status;
    return Status();
  }

private:
  /// Tokens that a text can have: the last one is not read again, and one that
  /// a decoder begins with is no part of what is asked for.
  size_t most() const { return length + (hasSources ? 1 : 0); }

  /// Gives a row the next text, if there is one.
  void fill(Row &row) {
    row = {};
    if (given == texts.size())
      return;
    row.isBusy = true;
    row.tokens = texts[given].tokens;
    row.text = given++;
  }

  /// Chooses the tokens of the next pass; false if there is none left.
  bool choose() {
    const auto most = size_t(session.program().batchSize());
    chosen.clear();
    sources.clear();
    onlyDecodes = true;
    // A token of each text, then further ones as there is room.
    for (bool more = true; more && chosen.size() < most;) {
      more = false;
      for (size_t r = 0; r < rows.size() && chosen.size() < most; ++r) {
        Row &row = rows[r];
        if (row.computed == row.tokens.size())
          continue;
        const BegunText &text = texts[row.text];
        if (hasSources && row.computed == 0)
          sources.push_back({int32_t(r), {text.source, text.padding}});
        onlyDecodes &= row.computed >= text.tokens.size();
        chosen.push_back(
            {int32_t(r), int32_t(row.computed), row.tokens[row.computed]});
        more |= ++row.computed < row.tokens.size();
      }
    }
    return !chosen.empty();
  }

  Status pass() {
    const auto begin = std::chrono::steady_clock::now();
    const bool draws = !rules.sampling.isGreedy();
    if (Status status = session.decode(chosen, predicted,
                                       draws ? &scores : nullptr, sources);
        !status)
      return status;
    const std::chrono::duration<double> took =
        std::chrono::steady_clock::now() - begin;
    ++cost.passes;
    if (onlyDecodes) {
      ++cost.decodePasses;
      cost.decodeSeconds += took.count();
    }
    for (size_t i = 0; i < chosen.size(); ++i) {
      Row &row = rows[size_t(chosen[i].row)];
      if (size_t(chosen[i].position) + 1 == row.tokens.size())
        take(row, draws ? draw(row, i) : predicted[i]);
    }
    return Status();
  }

  int32_t draw(const Row &row, size_t i) {
    const auto words = size_t(session.program().vocabularySize());
    // Texts draw numbers of their own.
    Sampling sampling = rules.sampling;
    sampling.seed += row.text;
    return sampleToken(std::span(scores).subspan(i * words, words), sampling,
                       row.tokens.size() - texts[row.text].tokens.size());
  }

  /// Appends a token to the text of a row, or ends it.
  void take(Row &row, int32_t token) {
    const size_t before = texts[row.text].tokens.size();
    if (rules.forced >= 0 && row.tokens.size() == before)
      token = rules.forced;
    const bool isEnd = rules.ends.count(token) > 0;
    if (!isEnd) {
      row.tokens.push_back(token);
      ++cost.tokens;
    }
    if (!isEnd && row.tokens.size() - before < rules.mostTokens &&
        row.tokens.size() < most())
      return;
    ended(row.text,
          {row.tokens.begin() + std::ptrdiff_t(before), row.tokens.end()});
    fill(row);
  }

  const std::vector<BegunText> &texts;
  const GenerationRules &rules;
  Session &session;
  const TextEnd &ended;
  GenerationCost &cost;
  const bool hasSources;
  const size_t length;
  std::vector<Row> rows;
  size_t given = 0; ///< texts that have or had a row
  std::vector<RowToken> chosen;
  std::vector<RowSource> sources; ///< of those that begin
  bool onlyDecodes = false;
  std::vector<int32_t> predicted;
  std::vector<double> scores;
};

} // namespace

Status continueTexts(const std::vector<BegunText> &texts,
                     const GenerationRules &rules, Session &session,
                     const TextEnd &ended, GenerationCost &cost) {
  return Writer(texts, rules, session, ended, cost).run();
}
