//===- Program.cpp - From a module to a loadable program ------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Target/Program.h"
#include "galvatron/Conversion/GRTToLLVM/GRTToLLVM.h"
#include "galvatron/Support/OutputFile.h"

#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/SHA256.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/TargetParser/Host.h"

using namespace mlir;
using namespace mlir::galvatron;
using ::galvatron::TemporaryFile;
using ::galvatron::writeInPlace;

namespace {

constexpr StringLiteral kTrailerMagic = "GVXEND01";

std::unique_ptr<llvm::TargetMachine>
createTargetMachine(ModuleOp module, const EmitOptions &options) {
  static const bool initialized = [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    return true;
  }();
  (void)initialized;
  llvm::Triple triple(llvm::sys::getDefaultTargetTriple());
  std::string error;
  const llvm::Target *target =
      llvm::TargetRegistry::lookupTarget(triple, error);
  if (!target) {
    module.emitError() << "expected a target for '" << triple.str()
                       << "': " << error;
    return nullptr;
  }
  StringRef cpu = options.manifest.cpu;
  // Host code on other machines takes the least of them.
  if (!triple.isX86())
    cpu = "generic";
  return std::unique_ptr<llvm::TargetMachine>(target->createTargetMachine(
      triple, cpu, /*Features=*/"", llvm::TargetOptions(), llvm::Reloc::PIC_,
      /*CM=*/std::nullopt,
      options.optLevel == 0 ? llvm::CodeGenOptLevel::None
                            : llvm::CodeGenOptLevel::Less));
}

FailureOr<std::string> findLinker(ModuleOp module, const EmitOptions &options) {
  SmallVector<StringRef> candidates = {options.linker};
  if (options.linker.empty())
    candidates = {GALVATRON_LLD_PATH, "ld.lld-22", "ld.lld"};
  for (StringRef candidate : candidates) {
    if (candidate.empty())
      continue;
    llvm::ErrorOr<std::string> path = llvm::sys::findProgramByName(candidate);
    if (path)
      return *path;
  }
  return module.emitError() << "expected the linker '" << candidates.front()
                            << "' to link the program, found none";
}

LogicalResult link(ModuleOp module, StringRef object, StringRef output,
                   const EmitOptions &options) {
  FailureOr<std::string> linker = findLinker(module, options);
  if (failed(linker))
    return failure();
  TemporaryFile log;
  if (std::error_code error = log.create(output, ".log"))
    return module.emitError()
           << "cannot write beside '" << output << "': " << error.message();
  SmallVector<StringRef> arguments = {*linker,
                                      "-shared",
                                      "--build-id=none",
                                      "--gc-sections",
                                      "-z",
                                      "now",
                                      "-z",
                                      "noexecstack",
                                      "--hash-style=gnu",
                                      "--strip-all",
                                      "--threads=1",
                                      "-o",
                                      output,
                                      object};
  std::optional<StringRef> redirects[] = {StringRef(""), log.getPath(),
                                          log.getPath()};
  std::string message;
  int status = llvm::sys::ExecuteAndWait(*linker, arguments,
                                         /*Env=*/std::nullopt, redirects,
                                         /*SecondsToWait=*/0,
                                         /*MemoryLimit=*/0, &message);
  if (status == 0)
    return success();
  InFlightDiagnostic diagnostic = module.emitError()
                                  << "linker '" << *linker
                                  << "' failed with status " << status;
  if (!message.empty())
    diagnostic << ": " << message;
  if (auto text = llvm::MemoryBuffer::getFile(log.getPath()))
    if (!(*text)->getBuffer().empty())
      diagnostic.attachNote() << (*text)->getBuffer().rtrim();
  return diagnostic;
}

} // namespace

std::string mlir::galvatron::programTrailer(StringRef payload) {
  std::string trailer = kTrailerMagic.str();
  char length[8];
  llvm::support::endian::write64le(length, payload.size());
  trailer.append(length, sizeof(length));
  std::array<uint8_t, 32> hash = llvm::SHA256::hash(ArrayRef(
      reinterpret_cast<const uint8_t *>(payload.data()), payload.size()));
  trailer.append(reinterpret_cast<const char *>(hash.data()), hash.size());
  return trailer;
}

FailureOr<std::string> mlir::galvatron::emitObject(ModuleOp module,
                                                   const EmitOptions &options) {
  FailureOr<std::string> manifest = writeManifest(module, options.manifest);
  if (failed(manifest))
    return failure();
  FailureOr<OwningOpRef<ModuleOp>> lowered =
      grt::convertGRTToLLVM(module, *manifest);
  if (failed(lowered))
    return failure();

  registerBuiltinDialectTranslation(*module.getContext());
  registerLLVMDialectTranslation(*module.getContext());
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> code =
      translateModuleToLLVMIR(**lowered, context, "program",
                              /*disableVerification=*/true);
  if (!code)
    return module.emitError("the program cannot be translated to LLVM IR");
  std::unique_ptr<llvm::TargetMachine> machine =
      createTargetMachine(module, options);
  if (!machine)
    return failure();
  code->setTargetTriple(machine->getTargetTriple());
  code->setDataLayout(machine->createDataLayout());

  llvm::SmallVector<char, 0> object;
  llvm::raw_svector_ostream stream(object);
  llvm::legacy::PassManager passes;
  if (machine->addPassesToEmitFile(passes, stream, /*DwoOut=*/nullptr,
                                   llvm::CodeGenFileType::ObjectFile,
                                   /*DisableVerify=*/true))
    return module.emitError("the target cannot write object files");
  passes.run(*code);
  return std::string(object.data(), object.size());
}

LogicalResult mlir::galvatron::emitProgram(ModuleOp module,
                                           StringRef outputPath,
                                           const EmitOptions &options) {
  FailureOr<std::string> object = emitObject(module, options);
  if (failed(object))
    return failure();

  auto cannotWrite = [&](std::error_code error) -> LogicalResult {
    return module.emitError()
           << "cannot write '" << outputPath << "': " << error.message();
  };
  bool inPlace = ::galvatron::isWrittenInPlace(outputPath);
  llvm::SmallString<128> beside(outputPath);
  if (inPlace) {
    llvm::sys::path::system_temp_directory(/*ErasedOnReboot=*/true, beside);
    llvm::sys::path::append(beside, "galvatron-program");
  }
  TemporaryFile objectFile, program;
  if (std::error_code error = objectFile.create(beside, ".o"))
    return cannotWrite(error);
  if (std::error_code error = program.create(beside, ".tmp"))
    return cannotWrite(error);
  if (std::error_code error = writeInPlace(objectFile.getPath(), *object))
    return cannotWrite(error);
  if (failed(link(module, objectFile.getPath(), program.getPath(), options)))
    return failure();

  auto linked = llvm::MemoryBuffer::getFile(program.getPath());
  if (!linked)
    return cannotWrite(linked.getError());
  std::string trailer = programTrailer((*linked)->getBuffer());
  if (inPlace) {
    std::string whole = ((*linked)->getBuffer() + trailer).str();
    if (std::error_code error = writeInPlace(outputPath, whole))
      return cannotWrite(error);
    return success();
  }
  linked->reset();
  if (std::error_code error =
          writeInPlace(program.getPath(), trailer, /*append=*/true))
    return cannotWrite(error);
  if (std::error_code error = program.moveTo(outputPath))
    return cannotWrite(error);
  return success();
}
