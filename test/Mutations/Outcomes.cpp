//===- Outcomes.cpp - What becomes of changed IR --------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Outcomes.h"
#include "Twin.h"

#include "galvatron/Pipelines/Compile.h"
#include "galvatron/Target/Program.h"
#include "grt/session.h"

#include <cmath>
#include <cstring>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace mlir;

namespace galvatron::test {

const char *outcomeName(Outcome outcome) {
  switch (outcome) {
  case Outcome::Refused:
    return "refused";
  case Outcome::Same:
    return "same program";
  case Outcome::Equal:
    return "equal results";
  case Outcome::OtherModel:
    return "other model";
  case Outcome::Wrong:
    return "wrong";
  case Outcome::Late:
    return "refused late";
  case Outcome::Crashed:
    return "crashed";
  }
  llvm_unreachable("unknown outcome");
}

//===----------------------------------------------------------------------===//
// Figures
//===----------------------------------------------------------------------===//

namespace {

void appendBytes(std::string &bytes, const void *from, size_t count) {
  bytes.append(static_cast<const char *>(from), count);
}

void appendText(std::string &bytes, const std::string &text) {
  size_t size = text.size();
  appendBytes(bytes, &size, sizeof(size));
  bytes += text;
}

std::string takeText(StringRef &bytes) {
  size_t size = 0;
  std::memcpy(&size, bytes.data(), sizeof(size));
  std::string text = bytes.substr(sizeof(size), size).str();
  bytes = bytes.drop_front(sizeof(size) + size);
  return text;
}

} // namespace

std::string Figures::pack() const {
  std::string bytes;
  appendText(bytes, error);
  for (const auto &[name, list] : values) {
    appendText(bytes, name);
    std::string raw;
    appendBytes(raw, list.data(), list.size() * sizeof(double));
    appendText(bytes, raw);
  }
  return bytes;
}

Figures Figures::unpack(StringRef bytes) {
  Figures figures;
  figures.error = takeText(bytes);
  while (!bytes.empty()) {
    std::string name = takeText(bytes), raw = takeText(bytes);
    std::vector<double> list(raw.size() / sizeof(double));
    std::memcpy(list.data(), raw.data(), raw.size());
    figures.values.emplace_back(std::move(name), std::move(list));
  }
  return figures;
}

std::string compare(const Figures &run, const Figures &reference) {
  if (run.values.size() != reference.values.size())
    return "other tensors";
  for (size_t i = 0; i < run.values.size(); ++i) {
    const auto &[name, values] = run.values[i];
    const auto &[wanted, expected] = reference.values[i];
    if (name != wanted || values.size() != expected.size())
      return "'" + name + "' in place of '" + wanted + "'";
    double distance = 0, norm = 0;
    for (size_t j = 0; j < values.size(); ++j) {
      distance += (values[j] - expected[j]) * (values[j] - expected[j]);
      norm += expected[j] * expected[j];
    }
    // Not `>`: numbers that are not finite differ, too.
    if (!(std::sqrt(distance) <= 1e-9 * std::sqrt(norm) + 1e-12))
      return "'" + name + "' differs by " +
             std::to_string(std::sqrt(distance / std::max(norm, 1e-300)));
  }
  return "";
}

//===----------------------------------------------------------------------===//
// Running
//===----------------------------------------------------------------------===//

namespace {

constexpr int64_t kSteps = 2;

::grt::Status runSteps(::grt::Session &session, Figures &figures) {
  auto add = [&](const std::string &name, ::grt::TensorMap &tensors) {
    for (auto &[key, tensor] : tensors)
      figures.values.emplace_back(name + " " + key, std::move(tensor.values));
  };
  auto batchOf = [&](int64_t step) {
    return twinBatch(session.program(), session.program().batchSize(), step);
  };
  ::grt::TensorMap tensors;
  ::grt::Status status = disturbVectors(session);
  bool late = session.program().gradientDelay() > 0;
  for (int64_t step = 0; status && step < kSteps; ++step) {
    ::grt::StepResult out;
    if (!session.hasBegun())
      status = session.setBatch(batchOf(step));
    if (status && late && step + 1 < kSteps)
      status = session.setNextBatch(batchOf(step + 1));
    if (status)
      status = session.step(out);
    figures.values.push_back({"loss", {out.loss}});
    if (!late)
      figures.values.push_back({"norm", {out.gradientNorm}});
    if (status && step == 0 && !session.program().updatesOnDevice()) {
      status = session.gradients(tensors);
      add("gradient", tensors);
    }
  }
  double loss = 0;
  uint64_t counted = 0;
  if (status)
    status = session.setBatch(batchOf(kSteps));
  if (status)
    status = session.evaluate(loss, counted);
  figures.values.push_back({"evaluation", {loss, double(counted)}});
  if (status)
    status = session.parameters(tensors);
  add("parameter", tensors);
  for (const ::grt::RankMemory &memory : session.memory())
    if (status && memory.measuredPeakBytes > memory.plannedPeakBytes)
      status = ::grt::Status(1, "rank " + std::to_string(memory.rank) +
                                    " took more memory than planned");
  return status;
}

} // namespace

Figures runProgram(const std::string &bytes) {
  Figures figures;
  std::shared_ptr<const ::grt::Program> program;
  ::grt::SessionOptions options;
  options.seed = 7;
  options.poison = true;
  options.shareDevices = true;
  options.threadsPerRank = 1;
  options.timeoutSeconds = 5;
  options.backendFolder = BACKEND_FOLDER;
  // What is compiled for devices runs on the model of one, which also checks
  // the order of streams.
  options.checkStreams = bytes.find("\"backend\":\"cpu\"") == bytes.npos;
  std::unique_ptr<::grt::Session> session;
  ::grt::Status status = ::grt::Program::loadMemory(bytes, "program", program);
  if (status) {
    if (program->gradientDelay() > 0 || program->updatesJustInTime())
      options.onNan = ::grt::OnNan::Late;
    status = ::grt::Session::create(program, options, session);
  }
  if (status) {
    session->hyperparameters().clipNorm = 0.5;
    status = runSteps(*session, figures);
  }
  if (!status)
    figures.error = status.message().empty() ? "no message" : status.message();
  return figures;
}

//===----------------------------------------------------------------------===//
// Processes
//===----------------------------------------------------------------------===//

std::optional<std::string> inProcess(int seconds,
                                     const std::function<std::string()> &work,
                                     std::string &why) {
  int ends[2];
  if (pipe(ends) != 0)
    llvm::report_fatal_error("no pipe");
  pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    std::string bytes = work();
    for (size_t at = 0; at < bytes.size();) {
      ssize_t count = write(ends[1], bytes.data() + at, bytes.size() - at);
      if (count <= 0)
        _exit(1);
      at += size_t(count);
    }
    _exit(0);
  }
  close(ends[1]);
  std::string bytes;
  bool inTime = true;
  std::vector<char> buffer(1 << 16);
  while (true) {
    pollfd wait{ends[0], POLLIN, 0};
    inTime = poll(&wait, 1, seconds * 1000) > 0;
    ssize_t count = inTime ? read(ends[0], buffer.data(), buffer.size()) : 0;
    if (count <= 0)
      break;
    bytes.append(buffer.data(), size_t(count));
  }
  if (!inTime)
    kill(child, SIGKILL);
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (inTime && WIFEXITED(status) && WEXITSTATUS(status) == 0)
    return bytes;
  why = !inTime ? "no end in " + std::to_string(seconds) + " s"
        : WIFSIGNALED(status)
            ? std::string("signal ") + strsignal(WTERMSIG(status))
            : "exit code " + std::to_string(WEXITSTATUS(status));
  return std::nullopt;
}

//===----------------------------------------------------------------------===//
// Compiling and judging
//===----------------------------------------------------------------------===//

static OwningOpRef<ModuleOp> parse(StringRef text, MLIRContext &context,
                                   std::string &message) {
  llvm::Expected<OwningOpRef<ModuleOp>> module =
      loadModel(text, "ir.mlir", {}, context);
  if (module)
    return std::move(*module);
  message = llvm::toString(module.takeError());
  return nullptr;
}

bool compileText(StringRef text, Phase phase, std::string &program,
                 std::string &message) {
  auto context = createCompilerContext();
  OwningOpRef<ModuleOp> module = parse(text, *context, message);
  if (!module)
    return false;
  if (llvm::Error error = runPhases(*module, phase, Phase::Allocate)) {
    message = llvm::toString(std::move(error));
    return false;
  }
  ScopedDiagnosticHandler handler(context.get(), [&](Diagnostic &diagnostic) {
    if (diagnostic.getSeverity() == DiagnosticSeverity::Error)
      message += diagnostic.str();
    return success();
  });
  FailureOr<std::string> bytes = mlir::galvatron::buildProgram(*module);
  if (failed(bytes) || failed(mlir::galvatron::verifyProgram(*module, *bytes)))
    return false;
  program = std::move(*bytes);
  return true;
}

/// The text of the changed IR; empty if there is no such attribute.
static std::string changedText(const Subject &subject, const Change &change) {
  auto context = createCompilerContext();
  std::string message;
  OwningOpRef<ModuleOp> module = parse(subject.text, *context, message);
  if (failed(applyChange(*module, change)))
    return "";
  std::string text;
  llvm::raw_string_ostream stream(text);
  module->print(stream, OpPrintingFlags().printGenericOpForm());
  return text;
}

namespace {

/// Changes after which IR is a legal other model: what it computes is not what
/// the model computed, and need not be.
struct LegalChange {
  const char *where;  ///< what `Change::where` begins with
  Phase last;         ///< up to which phase
  const char *reason; ///< for people
};

constexpr LegalChange kLegal[] = {
    {"nn.", Phase::Split, "bodies are the model until they are differentiated"},
    {"func.func", Phase::Split, "the same"},
    {"func.return", Phase::Split, "the same"},
    {"galvatron.layer operand", Phase::Bufferize, "edges are the model"},
    {"galvatron.yield operand", Phase::Bufferize, "the same"},
    {"galvatron.output operand", Phase::Bufferize, "the same"},
    {"galvatron.transfer operand", Phase::Bufferize, "the same"},
    {"galvatron.layer 'params'", Phase::Split, "so are parameters"},
    {"galvatron.layer 'callee'", Phase::Split, "and bodies"},
    {"galvatron.layer dropped", Phase::Split, "a model with a layer less"},
    {"galvatron.layer twice", Phase::Split, "a model with a layer more"},
    {"galvatron.model 'data'", Phase::Bufferize, "other data"},
    {"galvatron.parameter 'init'", Phase::Allocate, "initial values"},
    {"galvatron.parameter 'std'", Phase::Allocate, "initial values"},
    {"galvatron.parameter 'decay'", Phase::Allocate, "weight decay"},
    {"galvatron.parameter 'sym_name'", Phase::Allocate, "names"},
    {"galvatron.parameter 'copies'", Phase::Allocate, "names"},
    {"builtin.module 'galvatron.training'", Phase::Split, "another training"},
};

const char *legalReason(Phase phase, const Change &change) {
  for (const LegalChange &legal : kLegal)
    if (StringRef(change.where).starts_with(legal.where) && phase <= legal.last)
      return legal.reason;
  return nullptr;
}

} // namespace

Result judge(const Subject &subject, const Change &change,
             std::string *changed) {
  std::string text = changedText(subject, change);
  if (changed)
    *changed = text;
  if (text.empty())
    return {Outcome::Refused, "no such attribute"};
  std::string program, message;
  if (!compileText(text, subject.phase, program, message)) {
    // Errors say where and what.
    bool says = !message.empty() &&
                message.find("without a message") == std::string::npos;
    return {says ? Outcome::Refused : Outcome::Crashed,
            says ? message : "refused without a message"};
  }
  if (program == subject.program)
    return {Outcome::Same, ""};
  std::string why;
  std::optional<std::string> bytes =
      inProcess(20, [&] { return runProgram(program).pack(); }, why);
  if (!bytes)
    return {Outcome::Crashed, "when run: " + why};
  Figures figures = Figures::unpack(*bytes);
  const char *reason = legalReason(subject.phase, change);
  if (!figures.error.empty())
    return {Outcome::Late, figures.error};
  std::string difference = compare(figures, subject.reference);
  if (difference.empty())
    return {Outcome::Equal, ""};
  if (reason)
    return {Outcome::OtherModel, reason};
  return {Outcome::Wrong, difference};
}

} // namespace galvatron::test
