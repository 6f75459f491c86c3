//===- tokenizer.h - From text to tokens and back ---------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The tokenizers of Hugging Face's `tokenizer.json`: byte-level and
// SentencePiece-style byte pair encoding, WordPiece, Unigram, whole words, with
// their normalizers, pre-tokenizers, added tokens, templates and decoders. The
// tokens are those of the package `tokenizers`; what a file asks for that this
// reader does not know is refused by name. Truncation and padding of a file are
// not applied: a text has all of its tokens.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_TOKENIZER_H
#define GRT_TOKENIZER_H

#include "grt/session.h"

namespace grt {

namespace text {
class Pipeline;
struct EncoderState;
} // namespace text

/// Immutable, for all threads.
class Tokenizer {
public:
  ~Tokenizer();
  Tokenizer(const Tokenizer &) = delete;
  Tokenizer &operator=(const Tokenizer &) = delete;

  /// Reads a `tokenizer.json`. Errors have exit code 2 and name the file and
  /// the key.
  static Status open(const std::string &path,
                     std::unique_ptr<Tokenizer> &result);
  /// Makes a tokenizer of a text in memory; `name` is for errors.
  static Status parse(std::string_view json, const std::string &name,
                      std::unique_ptr<Tokenizer> &result);

  /// "BPE", "WordPiece", "Unigram" or "WordLevel".
  const std::string &kind() const;
  /// SHA-256 of the file, 64 hexadecimal digits.
  const std::string &hash() const;
  /// The largest token plus one.
  uint32_t vocabularySize() const;
  /// The token of a text that is one, added ones first.
  std::optional<uint32_t> find(std::string_view token) const;

  /// True if a token stands for no text.
  bool isSpecial(uint32_t token) const;

  /// True if a long text can be encoded in parts (Encoder::encodePart).
  bool hasParts() const;

  /// The text of tokens, without special ones if `skipSpecial`. Tokens that the
  /// vocabulary lacks are left out.
  std::string decode(std::span<const uint32_t> ids, bool skipSpecial) const;

private:
  friend class Encoder;
  Tokenizer();
  std::unique_ptr<text::Pipeline> pipeline;
};

/// Encodes texts with a tokenizer, which must outlive it. Of one thread.
class Encoder {
public:
  explicit Encoder(const Tokenizer &tokenizer);
  ~Encoder();
  Encoder(Encoder &&) noexcept;

  /// Appends the tokens of a text, with `addSpecial` those that its template
  /// puts around. What is no UTF-8 is refused with its position.
  Status encode(std::string_view text, bool addSpecial,
                std::vector<uint32_t> &ids);

  /// Appends the tokens of bytes [begin, end) of a text that is UTF-8, as they
  /// are among those of the whole text, provided that a token of the whole text
  /// begins at `begin`. `ends` says whether one ends at `end`; if not, nothing
  /// is appended, as the bytes are no part. Only if the tokenizer hasParts().
  Status encodePart(std::string_view text, size_t begin, size_t end,
                    std::vector<uint32_t> &ids, bool &ends);

  /// The tokens that the template puts before and behind a text.
  const std::vector<uint32_t> &specialBefore() const;
  const std::vector<uint32_t> &specialBehind() const;

private:
  const text::Pipeline &pipeline;
  std::unique_ptr<text::EncoderState> state;
};

/// Returns the first place at `from` or behind at which a long text may be cut
/// for encodePart(): after a line feed that is followed by anything but white
/// space. The text's size if there is no such place.
size_t nextCut(std::string_view text, size_t from);

} // namespace grt

#endif // GRT_TOKENIZER_H
