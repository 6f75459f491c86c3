//===- options.cpp - Command line of galvatron-data -----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "options.h"

#include "core/nearest.h"

#include <cerrno>
#include <cstdlib>
#include <functional>
#include <map>

namespace grt::data {
namespace {

Status wrong(const std::string &option, const std::string &expected,
             const std::string &found) {
  return Status(ExitInvalid, "option '" + option + "': expected " + expected +
                                 ", found '" + found + "'");
}

Status integer(const std::string &option, const std::string &text,
               uint64_t least, uint64_t most, uint64_t &value) {
  errno = 0;
  value = std::strtoull(text.c_str(), nullptr, 10);
  if (text.empty() ||
      text.find_first_not_of("0123456789") != std::string::npos || errno ||
      value < least || value > most)
    return wrong(option,
                 "a whole number from " + std::to_string(least) + " to " +
                     std::to_string(most),
                 text);
  return Status();
}

using Action =
    std::function<Status(const std::string &option, const std::string &value)>;

std::map<std::string, Action> valueOptions(Options &o) {
  auto word = [](std::string &to) -> Action {
    return [&to](const std::string &option, const std::string &value) {
      if (value.empty())
        return wrong(option, "a value", value);
      to = value;
      return Status();
    };
  };
  return {
      {"--tokenizer", word(o.tokenizer)},
      {"--output", word(o.output)},
      {"-o", word(o.output)},
      {"--text-key", word(o.corpus.key)},
      {"--end-token", word(o.corpus.end)},
      {"--documents",
       [&](const std::string &option, const std::string &value) {
         if (!text::parseDocuments(value, o.corpus.documents))
           return wrong(option, "file, line or jsonl", value);
         return Status();
       }},
      {"--format",
       [&](const std::string &option, const std::string &value) {
         if (value != "u16" && value != "u32")
           return wrong(option, "u16 or u32", value);
         o.width = value == "u16" ? 2 : 4;
         return Status();
       }},
      {"--shard-tokens",
       [&](const std::string &option, const std::string &value) {
         return integer(option, value, 1, uint64_t(1) << 40, o.shardTokens);
       }},
      {"--document",
       [&](const std::string &option, const std::string &value) {
         return integer(option, value, 0, ~uint64_t(0) >> 1, o.document);
       }},
      {"--labels-key", word(o.corpus.labelsKey)},
      {"--seq-len",
       [&](const std::string &option, const std::string &value) {
         return integer(option, value, 2, uint64_t(1) << 30, o.sampleTokens);
       }},
      {"--documents-per-sample",
       [&](const std::string &option, const std::string &value) {
         if (value == "fit") {
           o.documentsPerSample = 0;
           return Status();
         }
         Status status =
             integer(option, value, 1, uint64_t(1) << 30, o.documentsPerSample);
         return status ? status
                       : wrong(option, "fit, or a whole number from 1", value);
       }},
      {"--long-documents",
       [&](const std::string &option, const std::string &value) {
         static const std::map<std::string, LongDocuments> known = {
             {"refuse", LongDocuments::Refuse},
             {"drop", LongDocuments::Drop},
             {"cut", LongDocuments::Cut}};
         auto found = known.find(value);
         if (found == known.end())
           return wrong(option, "refuse, drop or cut", value);
         o.longDocuments = found->second;
         return Status();
       }},
      {"--pad-token",
       [&](const std::string &option, const std::string &value) {
         uint64_t token = 0;
         Status status =
             integer(option, value, 0, (uint64_t(1) << 31) - 1, token);
         o.padToken = uint32_t(token);
         return status;
       }},
      {"--threads",
       [&](const std::string &option, const std::string &value) {
         uint64_t threads = 0;
         Status status = integer(option, value, 1, 1024, threads);
         o.corpus.threads = unsigned(threads);
         return status;
       }},
  };
}

/// Checks that the options that a command needs are given.
Status checkCommand(const Options &options) {
  auto expect = [&](bool isThere, const char *what) {
    return isThere
               ? Status()
               : Status(ExitInvalid, options.command + ": expected " + what);
  };
  if (options.command.empty())
    return Status(ExitInvalid,
                  "expected a command: tokenize, pack, check or print");
  if (Status status = expect(!options.inputs.empty(), "at least one file");
      !status)
    return status;
  if (options.command == "check")
    return Status();
  if (options.command == "pack") {
    Status status =
        expect(options.sampleTokens, "the tokens of a sample, --seq-len=N");
    return status ? expect(!options.output.empty(),
                           "a folder for the shards, -o DIR")
                  : status;
  }
  if (Status status =
          expect(!options.tokenizer.empty(), "--tokenizer=tokenizer.json");
      !status || options.command == "print")
    return status;
  return expect(!options.output.empty(), "a folder for the shards, -o DIR");
}

} // namespace

Status parseOptions(int count, char **arguments, Options &options) {
  const std::map<std::string, Action> actions = valueOptions(options);
  const std::map<std::string, bool *> flags = {
      {"--help", &options.help},
      {"-h", &options.help},
      {"--version", &options.version},
      {"--special", &options.corpus.special},
      {"--show-labels", &options.showLabels}};
  for (int i = 0; i < count; ++i) {
    std::string argument = arguments[i];
    if (argument.size() < 2 || argument[0] != '-') {
      if (!options.command.empty()) {
        options.inputs.push_back(argument);
        continue;
      }
      if (argument != "tokenize" && argument != "pack" && argument != "check" &&
          argument != "print")
        return Status(
            ExitInvalid,
            "expected a command, tokenize, pack, check or print, found '" +
                argument + "'");
      options.command = argument;
      continue;
    }
    size_t equals = argument.find('=');
    std::string name = argument.substr(0, equals);
    bool isGiven = equals != std::string::npos;
    if (auto flag = flags.find(name); flag != flags.end()) {
      if (isGiven)
        return Status(ExitInvalid, "option '" + name + "' takes no value");
      *flag->second = true;
      continue;
    }
    auto action = actions.find(name);
    if (action == actions.end()) {
      std::vector<std::string> known;
      for (const auto &[option, set] : actions)
        known.push_back(option);
      for (const auto &[option, set] : flags)
        known.push_back(option);
      return Status(ExitInvalid, unknownOption(name, nearestName(name, known)));
    }
    if (!isGiven && i + 1 == count)
      return Status(ExitInvalid, "option '" + name + "' needs a value");
    std::string value = isGiven ? argument.substr(equals + 1) : arguments[++i];
    if (Status status = action->second(name, value); !status)
      return status;
  }
  if (options.help || options.version)
    return Status();
  return checkCommand(options);
}

const char *helpText() {
  return R"(usage: galvatron-data tokenize TEXT... --tokenizer=FILE -o DIR [options]
       galvatron-data pack SHARD... --seq-len=N -o DIR [options]
       galvatron-data check SHARD...
       galvatron-data print SHARD --tokenizer=FILE [--document=N]

Makes files of tokens that galvatron-run trains on: --data='DIR/*.u16'.

tokenize: text through a Hugging Face tokenizer.json
  --tokenizer=FILE          the tokenizer
  --output=DIR              or -o DIR: where shards and their indices go, a new
                            folder or an empty one
  --documents=file|line|jsonl
                            what is a document (default: jsonl for .jsonl, a
                            JSON object a line, else file)
  --text-key=NAME           the text of a JSON object (default text)
  --labels-key=NAME         the spans of a JSON object's text that count in the
                            loss, [[begin, end], ..] in bytes; default: all
  --end-token=TOKEN         a token behind every document, by its text
  --special                 the tokens that the tokenizer puts around a text
  --format=u16|u32          the width of a token (default: u16 if all fit)
  --shard-tokens=N          tokens after which a document is the last of its
                            shard (default 268435456)
  --threads=N               default: all cores

pack: documents of shards as samples of one length
  --seq-len=N               tokens of a sample, as of the program
  --output=DIR              or -o DIR, as above
  --documents-per-sample=N|fit
                            at most so many (default 1), or all that fit, by
                            best fit; galvatron-compile --documents=attention
                            makes programs that keep them apart
  --long-documents=refuse|drop|cut
                            those longer than a sample (default: an error);
                            cut: every piece is a document of its own
  --pad-token=N             what fills a sample and does not count (default 0)

check: whether shards are what their indices say, to the last token

print: a document as text
  --tokenizer=FILE          the tokenizer that made it
  --document=N              which, from 0 (the default)
  --show-labels             with [[ ]] around what counts as a label

  --version, --help

exit codes: 0 done, 1 failed otherwise, 2 wrong usage or invalid input,
5 storage, 6 memory
)";
}

} // namespace grt::data
