//===- label_spans.h - Which tokens of a text are labels --------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_TEXT_LABEL_SPANS_H
#define GRT_TEXT_LABEL_SPANS_H

#include "grt/tokenizer.h"

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace grt::text {

/// Bytes [begin, end) of a text.
struct LabelSpan {
  uint64_t begin = 0, end = 0;
};

/// Says of each of `ids`, the tokens of `text` without special ones around,
/// whether it counts as a label: 1 for every token of which a part lies in one
/// of the spans, which are in order and do not overlap; else 0. The first token
/// is none, as nothing stands before it.
///
/// A token boundary at byte b is seen by encoding the text up to b: its tokens
/// are then the first of `ids`. Where they are not, the nearest bytes around b
/// at which they are bound what counts, so that a word that is cut by a span
/// counts whole. With `isExact` that is an error with exit code 2 which says
/// where.
std::vector<uint8_t> labelsOf(Encoder &encoder, std::string_view text,
                              std::span<const uint32_t> ids,
                              const std::vector<LabelSpan> &spans,
                              bool isExact);

} // namespace grt::text

#endif // GRT_TEXT_LABEL_SPANS_H
