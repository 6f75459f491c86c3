//===- help.cpp - The options of galvatron-run, and its help --------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One table. What --help prints is made of it, and of that the manual page and
// the completions of shells (cmake/tool_pages.py); a test holds that it has the
// options that are parsed.
//
//===----------------------------------------------------------------------===//

#include "options.h"

#include <algorithm>
#include <string>

namespace {

struct OptionHelp {
  const char *section; ///< null: that of the option before
  const char *option;  ///< with its value
  const char *text;
};

constexpr OptionHelp table[] = {
    {"data", "--data=[NAME=][WEIGHT:]FILE[,FILE..]",
     "files of one of the program's data (without NAME: of its tokens, else of "
     "its first); may be repeated, with weights that add up to 1 as a mixture. "
     "The name of a file is that file, even with commas; else patterns (*?[]) "
     "are the files that match, by name"},
    {nullptr, "--data-format=text|jsonl|u16|u32|bin|npy",
     "text: bytes, or through --tokenizer; bin: Megatron-LM's; default: by "
     "suffix"},
    {nullptr, "--tokenizer=FILE",
     "a tokenizer.json: what text and --generate go through"},
    {nullptr, "--documents=file|line|jsonl",
     "what of a text is a document (default: jsonl for .jsonl, else file)"},
    {nullptr, "--text-key=NAME", "the text of a JSON object (default text)"},
    {nullptr, "--end-token=TOKEN",
     "a token behind every document, by its text; --generate ends there"},
    {nullptr, "--mask-documents",
     "the first token of a document is no label of the one before (shards with "
     "an index, bin, and text through --tokenizer)"},
    {nullptr, "--corrupt=tokens|spans",
     "makes what a BERT guesses (masked tokens) or a T5 writes (spans) from "
     "rows of tokens, anew in every epoch"},
    {nullptr, "--corrupt-rate=X", "of the tokens (default 0.15)"},
    {nullptr, "--span-length=X", "the mean of spans (default 3)"},
    {nullptr, "--mask-token=TOKEN",
     "the mask, by its text or number (default: [MASK] or <mask> of the "
     "tokenizer, or the configuration's mask_token_id)"},
    {nullptr, "--frame-samples",
     "around every sample of masked tokens are those that the tokenizer puts "
     "around a text ([CLS] and [SEP])"},
    {nullptr, "--first-sentinel=TOKEN",
     "what stands for a sample's first span, by its text or number; the others "
     "descend from it (default: <extra_id_0>, <extra_id_1>, .. of the "
     "tokenizer)"},
    {nullptr, "--validation-fraction=F",
     "part of the samples, at the end, kept for validation"},
    {nullptr, "--validate-every=N",
     "validation loss every N steps and at the end"},
    {nullptr, "--validation-batches=N",
     "at most N batches each time (default: all)"},
    {nullptr, "--validation-data=[NAME=]FILE",
     "files that are validated on, in place of a part of --data; may be "
     "repeated"},
    {nullptr, "--save-best=FOLDER",
     "writes the model whenever its validation loss is the least so far"},
    {nullptr, "--patience=N",
     "ends the run behind N validations in a row none of which was the least "
     "so far"},
    {nullptr, "--evaluate[=[NAME=]FILE]",
     "loss, perplexity and accuracy over these files, or over --data (or its "
     "validation part); trains nothing"},
    {"run", "--describe[=whole|manifest]",
     "prints what the program is (as JSON with --json[=FILE]), 'whole' with "
     "every call of its functions and every task of its stages, or its "
     "manifest, and runs nothing"},
    {nullptr, "--measure",
     "the program is a folder of them, from galvatron-compile --measure-top: "
     "some steps of each (--steps=N, default 10) on made-up data, and which is "
     "the fastest; what is known is in its measured.json, and the same command "
     "goes on"},
    {nullptr, "--steps=N", "training steps; 0 trains nothing"},
    {nullptr, "--max-seconds=N",
     "ends the run by itself, in time, after saving"},
    {nullptr, "--ranks=N",
     "must match the program; under mpirun or srun: of each process (default "
     "1)"},
    {nullptr, "--launch-secret=FILE",
     "what only the processes of this run know, mode 0600 (default: "
     "GALVATRON_LAUNCH_SECRET); needed on several machines without MPI"},
    {nullptr, "--listen=WHERE",
     "addresses or interfaces where this process is reached, or any (default: "
     "as MASTER_ADDR says)"},
    {nullptr, "--threads-per-rank=N", "default: cores / ranks, at least 1"},
    {nullptr, "--seed=N", "of weights, dropout and sample order (default 0)"},
    {nullptr, "--host-memory=SIZE",
     "what all ranks of this machine may take (12GiB); default: what is "
     "available"},
    {nullptr, "--timeout=SECONDS",
     "a rank without progress for so long ends the run (default 600; 0: "
     "never)"},
    {nullptr, "--check-streams",
     "run on a model of a device that checks how the program uses streams and "
     "memory; slow, needs no GPU"},
    {nullptr, "--no-cuda-graph",
     "give a GPU one call after the other instead of whole steps"},
    {nullptr, "--share-gpus",
     "ranks may be on one GPU, for tests: all of a process are"},
    {nullptr, "--check",
     "look at the machines as a run with the same options would, say what is "
     "wrong and run nothing; ends with 2 where the run would end by it"},
    {nullptr, "--any-placement",
     "go on where GPUs that the plan has in one node are on several hosts"},
    {nullptr, "--no-link-check",
     "leave out the all-reduces that measure links before a run on GPUs"},
    {nullptr, "--flight-recorder=FILE",
     "where the last operations of each rank go when a run fails (default "
     "galvatron-flight.json; none: nowhere)"},
    {nullptr, "--core-dumps", "a crash leaves a core"},
    {nullptr, "--on-nan=stop|skip|late",
     "when a loss or gradient norm is not finite: stop and name the layer, or "
     "leave the step's update out; late: stop behind the update, for programs "
     "whose updates wait for nobody: schedule 2bw, and on CPU ranks all that "
     "were compiled with --clip=off"},
    {nullptr, "--check-replicas=N",
     "every N steps, and before a checkpoint, compares what data-parallel "
     "replicas hold, and ends the run where it differs"},
    {nullptr, "--init=FILE|DIR",
     "weights to start from: safetensors with Hugging Face names, or a folder "
     "with them"},
    {nullptr, "--adapters=DIR",
     "adapters to start from, as PEFT writes them, of a program with adapters"},
    {"checkpoints", "--checkpoint=DIR",
     "writes one at the end, on SIGINT, SIGTERM and SIGHUP; on SIGUSR1, and "
     "goes on"},
    {nullptr, "--checkpoint-every=N", "and every N steps"},
    {nullptr, "--keep-checkpoints=N", "the newest that stay (default 2)"},
    {nullptr, "--no-write-behind",
     "steps wait while a checkpoint is written; nothing is copied"},
    {nullptr, "--accept-new-order",
     "with --resume: a mixture whose checkpoint an older version made goes on, "
     "in another order of samples"},
    {nullptr, "--resume",
     "goes on from the newest in DIR, if there is one; options that are not "
     "given are taken from it"},
    {nullptr, "--restarts=N",
     "starts the run again after a failure, up to N times, from the newest "
     "checkpoint that is whole; after a value that is not finite without the "
     "batches where it was met"},
    {nullptr, "--elastic=FOLDER",
     "of --restarts: programs for fewer ranks; where some processes do not "
     "come "
     "back the run goes on with the largest that those left can be (several "
     "processes over TCP)"},
    {"optimizer", "--lr=X", "learning rate (default 1e-3)"},
    {nullptr, "--lr-schedule=constant|linear|cosine|wsd",
     "how it goes on behind the warm-up; wsd: constant until the last steps, "
     "which fall linearly"},
    {nullptr, "--min-lr=X",
     "end of the decay (default: 0 with --lr-schedule, else --lr, no decay; "
     "without it a cosine)"},
    {nullptr, "--warmup-steps=N", "linear warm-up (default 0)"},
    {nullptr, "--decay-steps=N",
     "length of the decay (default: all steps after the warm-up; of wsd the "
     "last tenth)"},
    {nullptr, "--accumulate=N",
     "N of the program's batches a step (default 1)"},
    {nullptr, "--parameter-groups=LIST",
     "by names, as in '*.bias:decay=0;*.wte.*:lr=0.1; *.h.0.*:frozen'; the "
     "last that fits counts"},
    {nullptr, "--skip-norm=X",
     "leaves the update of a step with a larger gradient norm out; 0: none"},
    {nullptr, "--skip-limit=N",
     "steps in a row that may be left out (default 10 with --skip-norm, else "
     "no limit)"},
    {nullptr, "--betas=B1,B2", "default 0.9,0.999"},
    {nullptr, "--eps=X", "default 1e-8"},
    {nullptr, "--weight-decay=X", "default 0.01 for adamw, else 0"},
    {nullptr, "--decay-all", "decay on vectors too"},
    {nullptr, "--momentum=X", "of sgd (default 0.9)"},
    {nullptr, "--clip-norm=X", "largest gradient norm (default 1)"},
    {"output", "--save=DIR",
     "writes model.safetensors and config.json, of a program with adapters "
     "these as PEFT does, at the end and on SIGINT, SIGTERM and SIGHUP"},
    {nullptr, "--merge",
     "--save writes the whole model with what its adapters add"},
    {nullptr, "--print-every=N",
     "lines of every N-th step (default: all; on a terminal one a second)"},
    {nullptr, "--timestamps",
     "lines begin with the time (UTC); those of --log have it"},
    {nullptr, "--log=FILE", "one JSON object per step"},
    {nullptr, "--summary=FILE", "one JSON object at the end"},
    {nullptr, "--json[=FILE]", "the summary on standard output, or in FILE"},
    {nullptr, "--report=FILE.html",
     "the run as a page: loss, times, memory, measured beside predicted"},
    {nullptr, "--trace=FILE",
     "Chrome trace of the last steps, measured and predicted; on SIGUSR2 also "
     "of the next ones, in FILE.step-N"},
    {nullptr, "--trace-steps=N",
     "how many (default 3); the summary's shares are theirs; 0: no step is "
     "recorded"},
    {nullptr, "--dump-gradients=FILE", "gradients of step 1 as safetensors"},
    {nullptr, "--generate=TEXT",
     "prints a continuation of TEXT: of the likeliest tokens, or drawn ones. "
     "A program of galvatron-compile --generate keeps keys and values; with "
     "any other a token costs a forward pass over its whole sequence and "
     "micro-batch"},
    {nullptr, "--prompts=FILE",
     "with a program that keeps keys, continuations of many texts: one a line, "
     "in a .jsonl a JSON string or an object with \"prompt\""},
    {nullptr, "--generation-config=FILE",
     "tokens that end a text, and how to draw (default: generation_config.json "
     "in the folder of --init); options given here go before it"},
    {nullptr, "--tokens=N", "its length (default 64)"},
    {nullptr, "--temperature=X",
     "draws tokens, from logits divided by X; 0: the likeliest"},
    {nullptr, "--top-k=N", "from the N likeliest tokens"},
    {nullptr, "--top-p=X",
     "from the likeliest ones that have X of the probability"},
    {nullptr, "--sampling-seed=N", "of these draws (default 0)"},
    {nullptr, "--version, --help", ""}};

constexpr const char *head =
    "usage: galvatron-run PROGRAM.gvx --data=FILE --steps=N [options]\n"
    "\n"
    "Runs a compiled training program. Ranks are threads of this process; "
    "under\n"
    "mpirun, srun or torchrun each process has one rank, or --ranks.\n"
    "\n";

constexpr const char *tail =
    "\n"
    "Options are --NAME=VALUE or --NAME VALUE. All outputs are tried before "
    "the\n"
    "first step; docs/operations.md says what ends a run and what is written "
    "then.\n"
    "\n"
    "exit codes: 0 done, 1 failed otherwise, 2 wrong usage or invalid "
    "input,\n"
    "3 a value that is not finite, 4 a process or rank is lost or stuck, 5 "
    "storage,\n"
    "6 memory; ended before all steps, after saving: 130 by SIGINT, 143 by "
    "SIGTERM,\n"
    "129 by SIGHUP, 141 by a closed pipe, 124 by --max-seconds\n";

/// The column where the text of an option begins, and the width of a line.
constexpr size_t column = 28, width = 79;

/// The text in lines of their own column; the first one goes on behind `used`
/// letters.
std::string wrapped(const std::string &text, size_t used) {
  std::string result, line;
  auto flush = [&] {
    if (line.empty())
      return;
    result += std::string(column - std::min(used, column), ' ') + line + "\n";
    used = 0;
    line.clear();
  };
  if (used + 1 > column) {
    result = "\n";
    used = 0;
  }
  for (size_t at = 0; at < text.size();) {
    size_t end = std::min(text.find(' ', at), text.size());
    if (!line.empty() && column + line.size() + 1 + end - at > width)
      flush();
    line += (line.empty() ? "" : " ") + text.substr(at, end - at);
    at = end + 1;
  }
  flush();
  return result.empty() ? "\n" : result;
}

} // namespace

std::string helpText() {
  std::string text = head;
  for (const OptionHelp &row : table) {
    if (row.section)
      text += std::string(row.section) + "\n";
    std::string option = std::string("  ") + row.option;
    text += option + wrapped(row.text, option.size());
  }
  return text + tail;
}

std::vector<std::string> helpedOptions() {
  std::vector<std::string> names;
  for (const OptionHelp &row : table) {
    std::string option = row.option;
    for (size_t at = 0; at < option.size();) {
      size_t end = std::min(option.find(", ", at), option.size());
      std::string one = option.substr(at, end - at);
      names.push_back(one.substr(0, one.find_first_of("=[")));
      at = end + 2;
    }
  }
  return names;
}
