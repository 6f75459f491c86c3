//===- galvatron-mutate.cpp - IR with one thing changed -------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Changes one thing in the IR of a phase, compiles it on, and where that is
// accepted runs the program and compares it with that of the unchanged IR.
// Fails if a change crashes the compiler or the program, or is accepted and
// wrong.
//
//===----------------------------------------------------------------------===//

#include "Families.h"
#include "Outcomes.h"

#include "galvatron/Pipelines/Compile.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/raw_ostream.h"

#include <array>
#include <cstring>
#include <map>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace galvatron;
using namespace galvatron::test;
namespace cl = llvm::cl;
namespace ir = mlir::galvatron;

namespace {

cl::opt<size_t> changes("changes", cl::desc("how many, of all subjects"),
                        cl::init(300));
cl::opt<unsigned> seed("seed", cl::desc("of what is drawn"), cl::init(1));
cl::opt<unsigned> jobs("jobs", cl::desc("processes"), cl::init(2));
cl::opt<bool> isLong("long", cl::desc("all models and families"),
                     cl::init(false));
cl::opt<std::string> phases("phases", cl::desc("names, by commas; all"));
cl::opt<std::string> models("models", cl::desc("names, by commas; all"));
cl::opt<std::string> kinds("kinds", cl::desc("of changes, by commas; all"));
cl::opt<std::string> operations("operations",
                                cl::desc("that are changed, by commas; all"));
cl::opt<std::string> keep("keep", cl::desc("folder for IR of what is not "
                                           "refused and of what is wrong"));
cl::opt<bool> verbose("print-all", cl::desc("print every outcome"),
                      cl::init(false));
cl::opt<std::string> programs("programs",
                              cl::desc("folder: write the models' programs "
                                       "there, and change nothing"));
cl::opt<double> allowed("allow-wrong", cl::init(0),
                        cl::desc("percent of changes"));

bool wanted(llvm::StringRef list, llvm::StringRef name) {
  llvm::SmallVector<llvm::StringRef> names;
  list.split(names, ',', -1, false);
  return names.empty() || llvm::is_contained(names, name);
}

std::string genericText(mlir::ModuleOp module) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  module->print(stream, mlir::OpPrintingFlags().printGenericOpForm());
  return text;
}

/// The subjects of a case: all phases whose IR can be compiled on.
void addSubjects(const Case &given, std::vector<Subject> &subjects) {
  auto context = createCompilerContext();
  auto module = plannedModule(given, *context);
  Phase last = Phase::Plan;
  std::string why, straight;
  Figures reference;
  for (Phase phase : ir::allPhases()) {
    if (phase < Phase::Plan || phase >= Phase::Emit)
      continue;
    if (phase > last)
      llvm::cantFail(runPhases(*module, last, phase));
    last = phase;
    if (!wanted(phases, ir::stringifyPhase(phase)))
      continue;
    Subject subject{&given, phase, genericText(*module), "", {}};
    std::string pretty, program, message;
    llvm::raw_string_ostream(pretty) << *module;
    // In either form a phase's IR is compiled on to the same program.
    if (!compileText(subject.text, phase, subject.program, message) ||
        !compileText(pretty, phase, program, message) ||
        program != subject.program ||
        (!straight.empty() && program != straight))
      llvm::report_fatal_error(
          llvm::Twine("case '") + given.name + "', " +
          ir::stringifyPhase(phase) + ": " +
          (message.empty() ? "compiled on it is another program" : message));
    straight = program;
    if (reference.values.empty()) {
      auto bytes = inProcess(
          60, [&] { return runProgram(subject.program).pack(); }, why);
      if (!bytes)
        llvm::report_fatal_error(llvm::Twine("reference: ") + why);
      reference = Figures::unpack(*bytes);
      if (!reference.error.empty())
        llvm::report_fatal_error(llvm::Twine("reference: ") + reference.error);
    }
    subject.reference = reference;
    subjects.push_back(std::move(subject));
  }
}

/// Writes the program of a case.
void writeProgram(const Case &given) {
  auto context = createCompilerContext();
  auto module = plannedModule(given, *context);
  llvm::ExitOnError check("case '" + given.name + "': ");
  check(compileProgram(*module, Phase::Plan,
                       programs + "/" + given.name + ".gvx"));
}

/// One change to judge.
struct Job {
  const Subject *subject;
  Change change;
};

std::vector<Job> drawJobs(const std::vector<Subject> &subjects) {
  std::mt19937 generator(seed);
  std::vector<Job> list;
  for (size_t i = 0; i < subjects.size(); ++i) {
    auto context = createCompilerContext();
    auto module =
        llvm::cantFail(loadModel(subjects[i].text, "ir.mlir", {}, *context));
    std::vector<Change> all = findChanges(*module);
    llvm::erase_if(all, [](const Change &change) {
      return !wanted(kinds, changeKindName(change.kind)) ||
             !wanted(operations,
                     llvm::StringRef(change.where).split(' ').first);
    });
    size_t share =
        changes * (i + 1) / subjects.size() - changes * i / subjects.size();
    for (Change &change : drawChanges(all, share, generator))
      list.push_back({&subjects[i], std::move(change)});
  }
  return list;
}

void write(int to, const std::string &bytes) {
  for (size_t at = 0; at < bytes.size();) {
    ssize_t count = ::write(to, bytes.data() + at, bytes.size() - at);
    if (count <= 0)
      _exit(1);
    at += size_t(count);
  }
}

void keepText(size_t number, const Job &job, const std::string &text) {
  std::string path = keep + "/" + std::to_string(number) + "." +
                     job.subject->given->name + "." +
                     ir::stringifyPhase(job.subject->phase).str() + ".mlir";
  std::error_code error;
  llvm::raw_fd_ostream stream(path, error);
  if (!error)
    stream << "// " << changeKindName(job.change.kind) << ": "
           << job.change.where << "\n"
           << text;
}

/// Processor time in which a change is compiled, which takes some milliseconds;
/// what it is run in counts by itself.
constexpr int kJudgeSeconds = 60;
/// Time in which one of the processes has to say something.
constexpr int kSilentSeconds = 1200;

/// A process that judges jobs, one after the other; it is replaced if one ends
/// it.
class Worker {
public:
  Worker(const std::vector<Job> &list, size_t first, size_t stride)
      : list(list), next(first), stride(stride) {}

  bool isDone() const { return next >= list.size(); }
  int descriptor() const { return from; }

  void start() {
    int ends[2];
    if (pipe(ends) != 0)
      llvm::report_fatal_error("no pipe");
    llvm::outs().flush();
    child = fork();
    if (child == 0) {
      close(ends[0]);
      if (!keep.empty() || !verbose)
        if (!freopen("/dev/null", "w", stderr))
          _exit(1);
      for (size_t i = next; i < list.size(); i += stride) {
        std::string text;
        limitProcessor(kJudgeSeconds);
        Result result = judge(*list[i].subject, list[i].change, &text);
        if (!keep.empty() && result.outcome != Outcome::Refused &&
            result.outcome != Outcome::Same)
          keepText(i, list[i], text);
        std::string bytes(1, char(result.outcome));
        uint32_t size = uint32_t(result.message.size());
        bytes.append(reinterpret_cast<char *>(&size), sizeof(size));
        write(ends[1], bytes + result.message);
      }
      _exit(0);
    }
    close(ends[1]);
    from = ends[0];
  }

  /// Reads what is there; false if the process has ended.
  bool read(std::vector<Result> &results) {
    char buffer[1 << 14];
    ssize_t count = ::read(from, buffer, sizeof(buffer));
    if (count <= 0)
      return false;
    bytes.append(buffer, size_t(count));
    uint32_t size = 0;
    while (bytes.size() >= 1 + sizeof(size)) {
      std::memcpy(&size, bytes.data() + 1, sizeof(size));
      if (bytes.size() < 1 + sizeof(size) + size)
        break;
      results[next] = {Outcome(bytes[0]), bytes.substr(1 + sizeof(size), size)};
      bytes.erase(0, 1 + sizeof(size) + size);
      next += stride;
    }
    return true;
  }

  /// Goes on behind a job that ended the process.
  void bury(std::vector<Result> &results, bool killed) {
    if (killed)
      kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    close(from);
    bytes.clear();
    if (isDone())
      return;
    results[next] = {Outcome::Crashed, killed ? "no end" : howEnded(status)};
    if (!keep.empty())
      keepText(next, list[next], "");
    next += stride;
    if (!isDone())
      start();
  }

private:
  const std::vector<Job> &list;
  size_t next, stride;
  int child = -1, from = -1;
  std::string bytes;
};

std::vector<Result> judgeAll(const std::vector<Job> &list) {
  std::vector<Result> results(list.size());
  std::vector<Worker> workers;
  for (size_t i = 0; i < jobs; ++i)
    workers.emplace_back(list, i, jobs);
  for (Worker &worker : workers)
    if (!worker.isDone())
      worker.start();
  while (!llvm::all_of(workers, [](Worker &w) { return w.isDone(); })) {
    std::vector<pollfd> waits;
    std::vector<Worker *> open;
    for (Worker &worker : workers)
      if (!worker.isDone()) {
        waits.push_back({worker.descriptor(), POLLIN, 0});
        open.push_back(&worker);
      }
    int ready = poll(waits.data(), waits.size(), kSilentSeconds * 1000);
    for (size_t i = 0; i < waits.size(); ++i)
      if (ready <= 0 || (waits[i].revents && !open[i]->read(results)))
        open[i]->bury(results, ready <= 0);
  }
  return results;
}

/// A message without numbers and names, to count what refuses.
std::string headOf(llvm::StringRef message) {
  llvm::StringRef line = message.split('\n').first;
  if (line.starts_with("ir.mlir:"))
    line = line.split(": ").second;
  std::string head;
  bool quoted = false;
  for (char letter : line) {
    if (letter == '\'') {
      quoted = !quoted;
      if (!quoted)
        head += "'..'";
      continue;
    }
    if (!quoted)
      head += llvm::isDigit(letter) ? 'N' : letter;
  }
  return head.substr(0, 100);
}

int report(const std::vector<Job> &list, const std::vector<Result> &results) {
  std::map<std::string, std::array<size_t, kOutcomes>> byPhase, byKind, byName;
  std::array<size_t, kOutcomes> all{};
  std::map<std::string, size_t> heads;
  for (size_t i = 0; i < list.size(); ++i) {
    const Job &job = list[i];
    const Result &result = results[i];
    auto count = [&](auto &map, std::string key) {
      ++map.try_emplace(std::move(key)).first->second[size_t(result.outcome)];
    };
    ++all[size_t(result.outcome)];
    std::string order = std::to_string(int(job.subject->phase));
    count(byPhase, order + " " + ir::stringifyPhase(job.subject->phase).str());
    count(byKind, changeKindName(job.change.kind));
    count(byName, job.subject->given->name);
    if (result.outcome == Outcome::Refused)
      ++heads[headOf(result.message)];
    bool bad = result.outcome >= Outcome::Wrong;
    if (bad || verbose)
      llvm::outs() << i << " " << outcomeName(result.outcome) << ": "
                   << job.subject->given->name << ", "
                   << ir::stringifyPhase(job.subject->phase) << ", "
                   << changeKindName(job.change.kind) << ", "
                   << job.change.where << ": "
                   << llvm::StringRef(result.message).take_front(300) << "\n";
  }
  auto line = [&](llvm::StringRef name,
                  const std::array<size_t, kOutcomes> &counts) {
    llvm::outs() << llvm::left_justify(name, 20);
    for (size_t count : counts)
      llvm::outs() << llvm::right_justify(std::to_string(count), 14);
    llvm::outs() << "\n";
  };
  llvm::outs() << llvm::left_justify("", 20);
  for (size_t i = 0; i < kOutcomes; ++i)
    llvm::outs() << llvm::right_justify(outcomeName(Outcome(i)), 14);
  llvm::outs() << "\n";
  for (auto *table : {&byPhase, &byKind, &byName})
    for (auto &[name, counts] : *table)
      line(name, counts);
  line("all", all);
  if (verbose)
    for (auto &[head, count] : heads)
      llvm::outs() << count << " x " << head << "\n";
  size_t wrong = all[size_t(Outcome::Wrong)] + all[size_t(Outcome::Late)];
  size_t crashed = all[size_t(Outcome::Crashed)];
  llvm::outs() << list.size() << " changes, " << wrong
               << " accepted and wrong, " << crashed << " crashed\n";
  return crashed || double(wrong) * 100 > allowed * double(list.size());
}

} // namespace

int main(int argc, char **argv) {
  cl::ParseCommandLineOptions(argc, argv, "IR with one thing changed\n");
  if (!keep.empty())
    llvm::sys::fs::create_directories(keep);
  if (!programs.empty())
    llvm::sys::fs::create_directories(programs);
  std::vector<Subject> subjects;
  std::vector<Case> cases = allCases();
  // Importing every family takes a while, so a short run does not.
  if (isLong || !models.empty())
    llvm::append_range(cases, familyCases(1));
  for (const Case &given : cases) {
    if (models.empty() ? !given.isShort && !isLong
                       : !wanted(models, given.name))
      continue;
    if (programs.empty())
      addSubjects(given, subjects);
    else
      writeProgram(given);
  }
  if (!programs.empty())
    return 0;
  std::vector<Job> list = drawJobs(subjects);
  return report(list, judgeAll(list));
}
