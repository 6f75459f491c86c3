//===- tokenizer.cpp - From text to tokens and back -----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "grt/tokenizer.h"
#include "base/error.h"
#include "text/pipeline.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>

namespace grt {
namespace text {

std::string Pipeline::normalized(std::string_view text) const {
  std::string result(text);
  for (const Normalizer &normalizer : normalizers)
    result = normalizer(result);
  return result;
}

bool Pipeline::hasParts() const {
  return normalizers.empty() && normalizedTokens.empty() &&
         !preTokenizers.empty() && preTokenizers.front()->pattern() &&
         !preTokenizers.front()->pattern()->looksBehind();
}

struct EncoderState {
  Scratch scratch;
  std::deque<std::string> texts;
  Pieces pieces{{}, &texts}, next{{}, &texts};
};

namespace {

/// An encoding of a text in progress.
class Encoding {
public:
  Encoding(const Pipeline &pipeline, EncoderState &state,
           std::vector<uint32_t> &ids)
      : pipeline(pipeline), state(state), ids(ids) {}

  void whole(std::string_view text) {
    sections(
        text, pipeline.rawTokens, [&](std::string_view section, bool isFirst) {
          if (pipeline.normalizers.empty() && pipeline.normalizedTokens.empty())
            return words(section, isFirst);
          std::string normal = pipeline.normalized(section);
          sections(normal, pipeline.normalizedTokens,
                   [&](std::string_view part, bool isFirstPart) {
                     words(part, isFirst && isFirstPart);
                   });
        });
  }

  /// False if no word ends at `end`.
  bool part(std::string_view text, size_t begin, size_t end) {
    const AddedTokens &added = pipeline.rawTokens;
    // Tokens that begin behind the part do not matter.
    std::string_view seen =
        text.substr(0, std::min(text.size(), end + added.longest()));
    for (size_t at = begin; at < end;) {
      AddedTokens::Match match{seen.size(), seen.size(), nullptr};
      if (!added.empty())
        match = added.next(seen, at);
      // A token at the end may take white space of the part.
      if (match.token && match.begin <= end && match.end > end)
        return false;
      std::string_view section =
          match.token ? text.substr(0, match.begin) : text;
      if (!partOfSection(section, at, std::min(match.begin, end),
                         begin == 0 && at == 0))
        return false;
      if (!match.token || match.begin >= end)
        return true;
      ids.push_back(match.token->id);
      at = match.end;
    }
    return true;
  }

private:
  template <typename Words>
  void sections(std::string_view text, const AddedTokens &added,
                const Words &eachSection) {
    size_t at = 0;
    while (!added.empty() && at < text.size()) {
      AddedTokens::Match match = added.next(text, at);
      if (match.begin > at)
        eachSection(text.substr(at, match.begin - at), at == 0);
      if (match.token)
        ids.push_back(match.token->id);
      at = match.end;
    }
    if (at < text.size())
      eachSection(text.substr(at), at == 0);
  }

  void words(std::string_view section, bool isFirst) {
    state.pieces.list.assign(1, {section, isFirst});
    encodePieces(0);
  }

  /// The pieces that the pre-tokenizers from `first` on leave, to the model.
  void encodePieces(size_t first) {
    Pieces &pieces = state.pieces, &next = state.next;
    for (size_t i = first; i < pipeline.preTokenizers.size(); ++i) {
      next.list.clear();
      for (const Piece &piece : pieces.list)
        pipeline.preTokenizers[i]->split(piece, next);
      std::swap(pieces.list, next.list);
    }
    for (const Piece &piece : pieces.list)
      pipeline.model->encode(piece.text, ids, state.scratch);
    state.texts.clear();
  }

  /// Encodes a part of a section that goes on behind it; the words are those of
  /// the whole section. Returns false if no word ends at `end`.
  bool partOfSection(std::string_view text, size_t begin, size_t end,
                     bool isFirst) {
    const Regex &regex = *pipeline.preTokenizers.front()->pattern();
    std::vector<Piece> &list = state.pieces.list;
    list.clear();
    auto add = [&](size_t from, size_t to) {
      if (from < to)
        list.push_back({text.substr(from, to - from), isFirst && from == 0});
    };
    Regex::Search search(regex, text);
    size_t at = begin, from = begin;
    while (at < end) {
      Regex::Match match;
      if (!search.next(from, match))
        match = {text.size(), text.size()};
      add(at, std::min(match.begin, end));
      if (match.begin >= end) {
        // The text between matches is one word, which must not go on.
        if (match.begin > end && at < end)
          return false;
        break;
      }
      if (match.end > end)
        return false;
      add(match.begin, match.end);
      at = from = match.end;
      if (match.begin == match.end && from < text.size())
        takeCodePoint(text, from);
      else if (match.begin == match.end)
        break;
    }
    encodePieces(1);
    return true;
  }

  const Pipeline &pipeline;
  EncoderState &state;
  std::vector<uint32_t> &ids;
};

} // namespace
} // namespace text

using text::Encoding;
using text::Pipeline;

Tokenizer::Tokenizer() = default;
Tokenizer::~Tokenizer() = default;

Status Tokenizer::parse(std::string_view json, const std::string &name,
                        std::unique_ptr<Tokenizer> &result) {
  return guarded([&] {
    std::unique_ptr<Tokenizer> read(new Tokenizer);
    read->pipeline = text::readPipeline(json, name);
    result = std::move(read);
  });
}

Status Tokenizer::open(const std::string &path,
                       std::unique_ptr<Tokenizer> &result) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  // Reading an empty file fails too, but without a reason in errno.
  if (!file || (!(content << file.rdbuf()) && errno))
    return Status(ExitInvalid, "cannot read tokenizer '" + path +
                                   "': " + std::strerror(errno));
  return parse(content.view(), path, result);
}

const std::string &Tokenizer::kind() const { return pipeline->kind; }
const std::string &Tokenizer::hash() const { return pipeline->hash; }
uint32_t Tokenizer::vocabularySize() const {
  return uint32_t(pipeline->texts.size());
}
bool Tokenizer::hasParts() const { return pipeline->hasParts(); }

std::optional<uint32_t> Tokenizer::find(std::string_view token) const {
  std::optional<uint32_t> id = pipeline->added.find(token);
  return id ? id : pipeline->model->vocabulary().find(token);
}

bool Tokenizer::isSpecial(uint32_t token) const {
  return token < pipeline->special.size() && pipeline->special[token];
}

std::string Tokenizer::decode(std::span<const uint32_t> ids,
                              bool skipSpecial) const {
  std::vector<std::string> tokens;
  for (uint32_t id : ids)
    if (id < pipeline->texts.size() && !pipeline->texts[id].empty() &&
        !(skipSpecial && pipeline->special[id]))
      tokens.push_back(pipeline->texts[id]);
  for (const text::Decoder &decoder : pipeline->decoders)
    decoder(tokens);
  std::string result;
  for (size_t i = 0; i < tokens.size(); ++i)
    result += (i && pipeline->decoders.empty() ? " " : "") + tokens[i];
  return result;
}

Encoder::Encoder(const Tokenizer &tokenizer)
    : pipeline(*tokenizer.pipeline),
      state(std::make_unique<text::EncoderState>()) {}
Encoder::~Encoder() = default;
Encoder::Encoder(Encoder &&) noexcept = default;

const std::vector<uint32_t> &Encoder::specialBefore() const {
  return pipeline.before;
}
const std::vector<uint32_t> &Encoder::specialBehind() const {
  return pipeline.behind;
}

Status Encoder::encode(std::string_view text, bool addSpecial,
                       std::vector<uint32_t> &ids) {
  return guarded([&] {
    size_t wrong = text::firstInvalidByte(text);
    if (wrong < text.size()) {
      char byte[8];
      std::snprintf(byte, sizeof(byte), "0x%02x",
                    unsigned(static_cast<unsigned char>(text[wrong])));
      invalid("byte " + str(wrong) + ": expected UTF-8, found " + byte);
    }
    if (addSpecial)
      ids.insert(ids.end(), pipeline.before.begin(), pipeline.before.end());
    Encoding(pipeline, *state, ids).whole(text);
    if (addSpecial)
      ids.insert(ids.end(), pipeline.behind.begin(), pipeline.behind.end());
  });
}

Status Encoder::encodePart(std::string_view text, size_t begin, size_t end,
                           std::vector<uint32_t> &ids, bool &ends) {
  return guarded([&] {
    size_t before = ids.size();
    ends = Encoding(pipeline, *state, ids).part(text, begin, end);
    if (!ends)
      ids.resize(before);
  });
}

size_t nextCut(std::string_view text, size_t from) {
  for (size_t at = from; at < text.size(); ++at) {
    if (at == 0 || text[at - 1] != '\n')
      continue;
    size_t next = at;
    if (!text::isWhitespace(text::takeCodePoint(text, next)))
      return at;
  }
  return text.size();
}

} // namespace grt
