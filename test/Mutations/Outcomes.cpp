//===- Outcomes.cpp - What becomes of changed IR --------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Outcomes.h"

#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"
#include "galvatron/Pipelines/Compile.h"
#include "galvatron/Target/Program.h"

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

static OwningOpRef<ModuleOp> parse(StringRef text, MLIRContext &context,
                                   std::string &message) {
  llvm::Expected<OwningOpRef<ModuleOp>> module =
      loadModel(text, "ir.mlir", {}, context);
  if (module)
    return std::move(*module);
  message = llvm::toString(module.takeError());
  return nullptr;
}

/// Compiles a module of a phase to a program; false: `message` says why not.
static bool compileModule(ModuleOp module, Phase phase, std::string &program,
                          std::string &message) {
  if (llvm::Error error = runPhases(module, phase, Phase::Emit)) {
    message = llvm::toString(std::move(error));
    return false;
  }
  ScopedDiagnosticHandler handler(
      module.getContext(), [&](Diagnostic &diagnostic) {
        if (diagnostic.getSeverity() == DiagnosticSeverity::Error)
          message += diagnostic.str();
        return success();
      });
  ::grt::gvx::ProgramBuilder builder;
  FailureOr<std::string> bytes =
      mlir::galvatron::buildProgram(module, {}, builder);
  if (failed(bytes) ||
      failed(mlir::galvatron::verifyProgram(module, *bytes, &builder.tables)))
    return false;
  program = std::move(*bytes);
  return true;
}

bool compileText(StringRef text, Phase phase, std::string &program,
                 std::string &message) {
  auto context = createCompilerContext();
  OwningOpRef<ModuleOp> module = parse(text, *context, message);
  return module && compileModule(*module, phase, program, message);
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
    {"galvatron.layer operand", Phase::Split, "edges are the model"},
    {"galvatron.yield operand", Phase::Split, "the same"},
    {"galvatron.output operand", Phase::Split, "the same"},
    {"galvatron.transfer operand", Phase::Split, "the same"},
    {"galvatron.layer 'params'", Phase::Split, "so are parameters"},
    {"galvatron.layer 'callee'", Phase::Split, "and bodies"},
    {"galvatron.layer dropped", Phase::Split, "a model with a layer less"},
    {"galvatron.layer twice", Phase::Split, "a model with a layer more"},
    {"galvatron.model 'data'", Phase::Split, "other data"},
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

/// Processor time of a run, which takes some milliseconds.
constexpr int kRunSeconds = 20;

/// The batch that a change gives to a case's plan, which stands there once, as
/// `batch = 8`.
std::optional<int64_t> changedBatch(const Subject &subject,
                                    const Change &change) {
  StringRef text = change.text;
  int64_t batch = 0;
  if (change.kind != ChangeKind::Integer ||
      change.attribute != mlir::galvatron::GalvatronDialect::kPlanAttr ||
      text.split("batch = ").second.consumeInteger(10, batch) ||
      batch == subject.given->batch)
    return std::nullopt;
  return batch;
}

/// What another batch is as legal as: the figures of the case that is planned
/// with it. Behind the plan nothing but the plan says how large a batch is.
std::string compareWithBatch(const Case &given, int64_t batch,
                             const Figures &figures) {
  std::string why;
  std::optional<std::string> bytes = inProcess(
      kRunSeconds,
      [&] {
        Case other = given;
        other.batch = batch;
        auto context = createCompilerContext();
        auto module = plannedModule(other, *context);
        std::string program, message;
        if (!compileModule(*module, Phase::Plan, program, message))
          return Figures{message, "", {}}.pack();
        return runProgram(program).pack();
      },
      why);
  if (!bytes)
    return "cannot be planned: " + why;
  Figures planned = Figures::unpack(*bytes);
  return planned.error.empty() ? compare(figures, planned) : planned.error;
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
      inProcess(kRunSeconds, [&] { return runProgram(program).pack(); }, why);
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
  if (std::optional<int64_t> batch = changedBatch(subject, change)) {
    difference = compareWithBatch(*subject.given, *batch, figures);
    if (difference.empty())
      return {Outcome::OtherModel, "the model that is planned with this batch"};
  }
  return {Outcome::Wrong, difference};
}

} // namespace galvatron::test
