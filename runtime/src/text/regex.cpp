//===- regex.cpp - Regular expressions of tokenizers ----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "text/regex.h"
#include "base/error.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace grt::text {

struct Regex::Code {
  pcre2_code *compiled = nullptr;
  bool isMachineCode = false;
};

struct Regex::Search::State {
  const Code *code;
  std::string_view text;
  pcre2_match_data *data;
  pcre2_match_context *context;
};

/// White space as Unicode and Oniguruma have it, inside a class.
static constexpr const char *whitespace =
    "\\t-\\r \\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}"
    "\\x{202f}\\x{205f}\\x{3000}";

/// Oniguruma's words: PCRE2 takes other numbers, no marks, and one connector
/// only. Of numbers below 256 that are no digits Oniguruma takes all.
static constexpr const char *word =
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"
    "\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}"
    "\\x{1f170}-\\x{1f189}";

/// `\p{Han}` means characters that some Han text has, too, where PCRE2 is not
/// told that it is the script itself.
static std::string scriptOf(const std::string &property) {
  std::string script = "\\p{sc:" + property + "}";
  int error = 0;
  PCRE2_SIZE at = 0;
  pcre2_code *code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(script.data()), script.size(),
                    PCRE2_UTF, &error, &at, nullptr);
  pcre2_code_free(code);
  return code ? "sc:" + property : property;
}

std::string Regex::translated(const std::string &pattern) {
  std::string result;
  size_t depth = 0; // of classes
  for (size_t at = 0; at < pattern.size(); ++at) {
    char c = pattern[at];
    if (c == '\\' && at + 1 < pattern.size()) {
      char escaped = pattern[++at];
      if (escaped == 's')
        result += depth ? whitespace : "[" + std::string(whitespace) + "]";
      else if (escaped == 'S' && depth == 0)
        result += "[^" + std::string(whitespace) + "]";
      else if (escaped == 'w')
        result += depth ? word : "[" + std::string(word) + "]";
      else if (escaped == 'W' && depth == 0)
        result += "[^" + std::string(word) + "]";
      else if ((escaped == 'S' || escaped == 'W') && depth)
        invalid("byte " + str(at - 1) + ": \\" + escaped +
                " inside a class is not implemented");
      else if (escaped == 'h' || escaped == 'H')
        invalid("byte " + str(at - 1) + ": \\" + escaped +
                ", which means hexadecimal digits, is not implemented");
      else if ((escaped == 'p' || escaped == 'P') && at + 1 < pattern.size() &&
               pattern[at + 1] == '{') {
        size_t end = std::min(pattern.find('}', at), pattern.size());
        std::string name = pattern.substr(at + 2, end - at - 2);
        bool isNegated = !name.empty() && name[0] == '^';
        std::string plain = name.substr(isNegated);
        result += {'\\', escaped, '{'};
        result += (isNegated ? "^" : "") +
                  (plain.size() > 2 ? scriptOf(plain) : plain) + "}";
        at = std::min(end, pattern.size() - 1);
      } else
        result += {'\\', escaped};
      continue;
    }
    if (depth == 0 && c == '[') {
      depth = 1;
      // A bracket that comes first is itself.
      result += c;
      if (at + 1 < pattern.size() && pattern[at + 1] == '^')
        result += pattern[++at];
      if (at + 1 < pattern.size() && pattern[at + 1] == ']')
        result += pattern[++at];
      continue;
    }
    if (depth && c == '[' && at + 1 < pattern.size()) {
      if (pattern[at + 1] != ':')
        invalid("byte " + str(at) + ": a class inside a class is not " +
                "implemented");
      size_t end = pattern.find(":]", at + 2);
      if (end != std::string::npos) {
        result += pattern.substr(at, end + 2 - at);
        at = end + 1;
        continue;
      }
    }
    if (depth && c == '&' && pattern.compare(at, 2, "&&") == 0)
      invalid("byte " + str(at) +
              ": an intersection of classes is not implemented");
    if (depth && c == ']')
      depth = 0;
    result += c;
  }
  return result;
}

Regex::Regex(const std::string &pattern) : code(std::make_unique<Code>()) {
  std::string text = translated(pattern);
  int error = 0;
  PCRE2_SIZE at = 0;
  // The anchors ^ and $ are the ends of lines, as in Ruby's syntax. Text is
  // checked once, when it comes in.
  code->compiled = pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error, &at, nullptr);
  if (!code->compiled) {
    PCRE2_UCHAR message[256];
    pcre2_get_error_message(error, message, sizeof(message));
    invalid("'" + text + "', byte " + str(at) + ": " +
            reinterpret_cast<const char *>(message));
  }
  // The pattern is interpreted if the processor or the policy of the system
  // allows no compiled code.
  code->isMachineCode =
      pcre2_jit_compile(code->compiled, PCRE2_JIT_COMPLETE) == 0;
}

Regex::~Regex() { pcre2_code_free(code->compiled); }

bool Regex::looksBehind() const {
  uint32_t characters = 0;
  pcre2_pattern_info(code->compiled, PCRE2_INFO_MAXLOOKBEHIND, &characters);
  return characters > 0;
}

Regex::Search::Search(const Regex &regex, std::string_view text)
    : state(std::make_unique<State>()) {
  // Long runs of one kind of character go deep where the pattern is
  // interpreted; PCRE2 takes this from the heap.
  constexpr uint32_t mostHeapKiB = 1u << 20;
  state->code = regex.code.get();
  state->text = text;
  state->data =
      pcre2_match_data_create_from_pattern(state->code->compiled, nullptr);
  state->context = pcre2_match_context_create(nullptr);
  if (!state->data || !state->context)
    throw std::bad_alloc();
  pcre2_set_heap_limit(state->context, mostHeapKiB);
}

Regex::Search::~Search() {
  pcre2_match_data_free(state->data);
  pcre2_match_context_free(state->context);
}

bool Regex::Search::next(size_t from, Match &match) {
  auto subject = reinterpret_cast<PCRE2_SPTR>(state->text.data());
  auto run = [&](uint32_t options) {
    return pcre2_match(state->code->compiled, subject, state->text.size(), from,
                       options | PCRE2_NO_UTF_CHECK, state->data,
                       state->context);
  };
  int found = run(0);
  // The stack of machine code is small; the interpreter's is not.
  if (found == PCRE2_ERROR_JIT_STACKLIMIT)
    found = run(PCRE2_NO_JIT);
  if (found == PCRE2_ERROR_NOMATCH)
    return false;
  if (found < 0) {
    PCRE2_UCHAR message[256];
    pcre2_get_error_message(found, message, sizeof(message));
    invalid("byte " + str(from) +
            ": the tokenizer's pattern cannot be matched: " +
            reinterpret_cast<const char *>(message));
  }
  PCRE2_SIZE *offsets = pcre2_get_ovector_pointer(state->data);
  match = {offsets[0], offsets[1]};
  return true;
}

} // namespace grt::text
