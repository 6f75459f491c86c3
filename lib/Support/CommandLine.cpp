//===- CommandLine.cpp - Command lines, and what --help prints ------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Support/CommandLine.h"

#include "galvatron/Support/OutputFile.h"
#include "galvatron/Support/Suggest.h"
#include "galvatron/Support/TextTable.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/raw_ostream.h"

#include <csignal>
#include <cstdlib>

using namespace galvatron;
using namespace llvm;

/// The column at which the text of an option begins, and that at which lines
/// end.
static constexpr size_t kTextColumn = 28, kColumns = 79;

//===----------------------------------------------------------------------===//
// Text in columns
//===----------------------------------------------------------------------===//

/// The words of `text` in lines that begin at `column`; the first line begins
/// where it is put.
static std::string inColumn(StringRef text, size_t column) {
  return join(foldText(text.trim(), kColumns - column),
              "\n" + std::string(column, ' '));
}

/// An option and what is said of it: behind the option, or where that is long,
/// below it.
static std::string entry(StringRef option, StringRef text) {
  if (text.trim().empty())
    return (option + "\n").str();
  size_t used = option.size() - (option.rfind('\n') + 1);
  // A list of several lines is followed by nothing, so that it can be read
  // back.
  bool below = used + 1 > kTextColumn || option.contains('\n');
  return (option + (below ? "\n" : "") +
          std::string(kTextColumn - (below ? 0 : used), ' ') +
          inColumn(text, kTextColumn) + "\n")
      .str();
}

/// "  --clip=on|off|delayed"; a list of values that is too long for a line goes
/// on behind one of its signs on the next.
static std::string optionText(const cl::Option &option) {
  bool isLetter = option.ArgStr.size() == 1;
  std::string text = (isLetter ? "  -" : "  --") + option.ArgStr.str();
  if (option.ValueStr.empty())
    return text;
  bool optional = option.getValueExpectedFlag() == cl::ValueOptional;
  std::string value = option.ValueStr.str();
  text += isLetter ? " " : optional ? "[=" : "=";
  value += optional && !isLetter ? "]" : "";
  std::string line = text, lines;
  for (StringRef left = value; !left.empty();) {
    StringRef part = left.substr(0, left.find('|') + 1);
    if (part.empty())
      part = left;
    left = left.drop_front(part.size());
    if (line.size() + part.size() > kColumns) {
      lines += line + "\n";
      line = "    ";
    }
    line += part;
  }
  return lines + line;
}

/// The default of an option, if it says something: "" and 0 are what their help
/// explains.
static std::string defaultOf(const cl::Option &option) {
  if (auto *text = dynamic_cast<const cl::opt<std::string> *>(&option))
    return text->getDefault().hasValue() ? text->getDefault().getValue() : "";
  int64_t number = 0;
  if (auto *integer = dynamic_cast<const cl::opt<int64_t> *>(&option))
    if (integer->getDefault().hasValue())
      number = integer->getDefault().getValue();
  return number ? std::to_string(number) : "";
}

/// The options of a category, by name.
static std::vector<cl::Option *> optionsOf(cl::OptionCategory &category) {
  std::vector<cl::Option *> options;
  for (const auto &[name, option] : cl::getRegisteredOptions())
    if (is_contained(option->Categories, &category))
      options.push_back(option);
  sort(options, [](const cl::Option *a, const cl::Option *b) {
    return a->ArgStr < b->ArgStr;
  });
  return options;
}

std::string galvatron::helpOf(const ToolText &tool,
                              cl::OptionCategory &category) {
  std::string text = ("usage: " + tool.name + " " + tool.usage + "\n\n").str();
  text += inColumn((tool.overview + ".").str(), 0) + "\n\n";
  for (const cl::Option *option : optionsOf(category)) {
    std::string said = option->HelpStr.str();
    if (std::string value = defaultOf(*option); !value.empty())
      said += " (default: " + value + ")";
    text += entry(optionText(*option), said);
  }
  text +=
      "  --version, --help\n\nOptions are --NAME=VALUE or --NAME VALUE.\n\n";
  text += inColumn(("exit codes: " + tool.exitCodes).str(), 0);
  return text + "\n";
}

std::string galvatron::wrapLibraryHelp(StringRef help) {
  std::string text;
  while (!help.empty()) {
    StringRef line;
    std::tie(line, help) = help.split('\n');
    line = line.rtrim();
    StringRef words = line.ltrim();
    size_t indent = line.size() - words.size();
    auto [option, said] = words.split(" - ");
    bool isOption = words.starts_with("-") || words.starts_with("=");
    if (isOption && !said.empty()) {
      text += entry((std::string(indent, ' ') + option.rtrim()).str(), said);
      continue;
    }
    text += std::string(words.empty() ? 0 : indent, ' ') +
            inColumn(words, indent) + "\n";
  }
  return text;
}

//===----------------------------------------------------------------------===//
// Parsing
//===----------------------------------------------------------------------===//

static int refuse(const ToolText &tool, const Twine &message) {
  errs() << tool.name << ": error: " << message << "\n";
  return 2;
}

/// Writes what --help and --version say; returns the exit code.
static int say(const ToolText &tool, StringRef text) {
  std::error_code code = writeWhole("-", text);
  if (!code)
    return 0;
  if (code == std::errc::broken_pipe)
    return 128 + SIGPIPE;
  errs() << tool.name
         << ": error: cannot write standard output: " << code.message() << "\n";
  return 1;
}

/// Returns the error that the option makes of a value; "" if it takes it.
static StringRef expectedOf(const cl::Option &option, StringRef value) {
  int64_t integer = 0;
  double number = 0;
  if (dynamic_cast<const cl::opt<int64_t> *>(&option))
    return value.getAsInteger(0, integer) ? "an integer" : "";
  if (dynamic_cast<const cl::opt<double> *>(&option))
    return value.getAsDouble(number) ? "a number" : "";
  if (dynamic_cast<const cl::opt<bool> *>(&option))
    return is_contained(
               {"true", "TRUE", "True", "1", "false", "FALSE", "False", "0"},
               value)
               ? ""
               : "no value";
  return "";
}

/// Looks at the arguments as the parser will; returns what is wrong with them.
static std::optional<std::string> problemOf(cl::OptionCategory &category,
                                            ArrayRef<char *> arguments) {
  const auto &known = cl::getRegisteredOptions();
  StringSet<> given;
  for (size_t i = 0; i < arguments.size(); ++i) {
    StringRef argument = arguments[i];
    if (argument == "--")
      break;
    if (argument.size() < 2 || argument[0] != '-')
      continue;
    StringRef dashes = argument.starts_with("--") ? "--" : "-";
    auto [name, value] = argument.drop_front(dashes.size()).split('=');
    bool hasValue = argument.contains('=');
    auto found = known.find(name);
    if (found == known.end()) {
      std::vector<std::string> names;
      for (const cl::Option *option : optionsOf(category))
        names.push_back("--" + option->ArgStr.str());
      std::string unknown = (dashes + name).str();
      return "unknown option '" + unknown + "'" + didYouMean(unknown, names);
    }
    const cl::Option &option = *found->second;
    if (!is_contained(option.Categories, &category))
      continue;
    std::string told =
        ("option " + Twine(name.size() == 1 ? "-" : "--") + name).str();
    if (!hasValue && option.getValueExpectedFlag() == cl::ValueRequired) {
      // A word that looks like an option is one.
      if (i + 1 == arguments.size() ||
          StringRef(arguments[i + 1]).starts_with("--"))
        return told + " needs a value";
      value = arguments[++i];
      hasValue = true;
    }
    bool repeats = option.getNumOccurrencesFlag() == cl::ZeroOrMore;
    if (!given.insert(name).second && !repeats)
      return told + ": expected it once, found it twice";
    if (StringRef expected = hasValue ? expectedOf(option, value) : "";
        !expected.empty())
      return told + ": expected " + expected.str() + ", found '" + value.str() +
             "'";
  }
  return std::nullopt;
}

/// Returns true if one of the words stands among the options.
static bool asksFor(ArrayRef<char *> arguments,
                    std::initializer_list<StringRef> words) {
  for (StringRef argument : arguments) {
    if (argument == "--")
      return false;
    if (is_contained(words, argument))
      return true;
  }
  return false;
}

std::optional<int> galvatron::parseCommandLine(const ToolText &tool,
                                               cl::OptionCategory &category,
                                               int argc, char **argv) {
  // A file that may not grow further is an error to be told, not the end; so is
  // a pipe that nobody reads, as there may be files to be written besides.
  std::signal(SIGXFSZ, SIG_IGN);
  std::signal(SIGPIPE, SIG_IGN);
  // The file that is opened next must not take the number of standard output.
  sys::Process::FixupStandardFileDescriptors();
  // The write error has been reported; a stream that remembers it would abort
  // the process when it is destroyed.
  outs(), errs();
  std::atexit([] {
    outs().clear_error();
    errs().clear_error();
  });
  ArrayRef<char *> arguments = ArrayRef(argv, argc).drop_front();
  if (asksFor(arguments, {"--help", "-help", "-h"}))
    return say(tool, helpOf(tool, category));
  if (asksFor(arguments, {"--version", "-version"}))
    return say(tool, (tool.name + " " + GALVATRON_VERSION + "\n").str());
  if (std::optional<std::string> problem = problemOf(category, arguments))
    return refuse(tool, *problem);
  cl::HideUnrelatedOptions(category);
  // The parser returns, if it is given a stream, instead of exiting with 1.
  std::string message;
  raw_string_ostream errors(message);
  if (cl::ParseCommandLineOptions(argc, argv, "", &errors))
    return std::nullopt;
  if (StringRef(message).contains("Too many positional arguments"))
    return refuse(tool,
                  "expected one input, found several; options begin with '-'");
  errs() << message;
  return 2;
}
