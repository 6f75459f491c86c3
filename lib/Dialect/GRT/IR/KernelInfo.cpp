//===- KernelInfo.cpp - What the runtime's kernels take -------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Dialect/GRT/IR/KernelInfo.h"

using namespace mlir;
using namespace mlir::grt;

namespace {

using Ints = ArrayRef<int64_t>;
using Operand = KernelOperand;
using Int = KernelInt;

constexpr Access kRead = Access::Read;
constexpr Access kWrite = Access::Write;
constexpr Access kAcc = Access::Accumulate;
constexpr ElementClass kFloat = ElementClass::Float;
constexpr ElementClass kIndex = ElementClass::Index;
constexpr ElementClass kAny = ElementClass::Any;
constexpr IntClass kFlag = IntClass::Flag;

/// Elements from the first to the last of `rows` rows of `width` elements that
/// start `stride` elements after each other.
int64_t strided(int64_t rows, int64_t stride, int64_t width) {
  return rows == 0 ? 0 : (rows - 1) * stride + width;
}

//===----------------------------------------------------------------------===//
// Operand, integer and real names, in the order of abi.h
//===----------------------------------------------------------------------===//

/// What products pack their operands in.
constexpr Operand kProductScratch = {"scratch", Access::Scratch, kAny, false,
                                     Presence::Optional};

constexpr Operand kGemmOperands[] = {
    {"a", kRead},
    {"b", kRead},
    {"c", kAcc},
    {"bias", kRead, kFloat, false, Presence::IfLastInt},
    kProductScratch};
constexpr Int kGemmInts[] = {{"M"},
                             {"N"},
                             {"K"},
                             {"transA", kFlag},
                             {"transB", kFlag},
                             {"acc", IntClass::Acc},
                             {"hasBias", kFlag}};

constexpr Operand kGemmGeluOperands[] = {
    {"a", kRead},
    {"b", kRead},
    {"bias", kRead},
    {"y", kWrite},
    {"pre", kWrite, kFloat, false, Presence::IfLastInt},
    kProductScratch};
constexpr Int kGemmGeluInts[] = {{"M"},
                                 {"N"},
                                 {"K"},
                                 {"transA", kFlag},
                                 {"transB", kFlag},
                                 {"approximate", kFlag},
                                 {"hasPre", kFlag}};
constexpr Operand kGemmGeluGradOperands[] = {
    {"a", kRead}, {"b", kRead}, {"x", kRead}, {"c", kWrite}, kProductScratch};
constexpr Int kGemmGeluGradInts[] = {{"M"},
                                     {"N"},
                                     {"K"},
                                     {"transA", kFlag},
                                     {"transB", kFlag},
                                     {"approximate", kFlag}};
constexpr Operand kGemmBiasGradOperands[] = {
    {"a", kRead}, {"b", kRead}, {"c", kAcc}, {"dbias", kAcc}, kProductScratch};
constexpr Int kGemmBiasGradInts[] = {
    {"M"}, {"N"}, {"K"}, {"acc", IntClass::Acc}};

constexpr Operand kBiasAddOperands[] = {
    {"x", kRead}, {"bias", kRead}, {"y", kWrite}};
constexpr Int kRowsInts[] = {{"rows"}, {"n"}};

constexpr Operand kBiasGradOperands[] = {{"dy", kRead}, {"dbias", kAcc}};
constexpr Int kRowsAccInts[] = {{"rows"}, {"n"}, {"acc", IntClass::Acc}};

constexpr Operand kLayerNormOperands[] = {{"x", kRead},
                                          {"gamma", kRead},
                                          {"beta", kRead},
                                          {"y", kWrite},
                                          {"stats", kWrite}};
constexpr StringLiteral kEpsReals[] = {"eps"};

constexpr Operand kLayerNormGradOperands[] = {
    {"dy", kRead},  {"x", kRead},     {"stats", kRead}, {"gamma", kRead},
    {"dx", kWrite}, {"dgamma", kAcc}, {"dbeta", kAcc}};

constexpr Operand kAddLayerNormOperands[] = {
    {"x", kRead},    {"residual", kRead}, {"gamma", kRead}, {"beta", kRead},
    {"sum", kWrite}, {"y", kWrite},       {"stats", kWrite}};
constexpr Int kAddLayerNormInts[] = {
    {"samples"}, {"rowsPerSample"}, {"n"}, {"opIndex"}};
constexpr StringLiteral kEpsDropoutReals[] = {"eps", "p"};

constexpr Operand kLayerNormAddGradOperands[] = {
    {"dy", kRead},       {"x", kRead},   {"stats", kRead}, {"gamma", kRead},
    {"residual", kRead}, {"dx", kWrite}, {"dgamma", kAcc}, {"dbeta", kAcc}};

constexpr Operand kRmsNormOperands[] = {
    {"x", kRead}, {"gamma", kRead}, {"y", kWrite}, {"stats", kWrite}};
constexpr Operand kRmsNormGradOperands[] = {{"dy", kRead},    {"x", kRead},
                                            {"stats", kRead}, {"gamma", kRead},
                                            {"dx", kWrite},   {"dgamma", kAcc}};
constexpr Int kRotaryInts[] = {
    {"samples"}, {"T"}, {"heads"}, {"headDim"}, {"inverse", kFlag}, {"pairs"}};
constexpr Operand kGatedOperands[] = {
    {"gate", kRead}, {"up", kRead}, {"y", kWrite}};
constexpr Operand kGatedGradOperands[] = {{"gate", kRead},
                                          {"up", kRead},
                                          {"dy", kRead},
                                          {"dgate", kWrite},
                                          {"dup", kWrite}};

constexpr Operand kUnaryOperands[] = {{"x", kRead}, {"y", kWrite}};
constexpr Int kGeluInts[] = {{"n"}, {"approximate", kFlag}};
constexpr Operand kGeluGradOperands[] = {
    {"x", kRead}, {"dy", kRead}, {"dx", kWrite}};
constexpr Operand kBiasGeluOperands[] = {
    {"x", kRead}, {"bias", kRead}, {"pre", kWrite}, {"y", kWrite}};
constexpr Int kBiasGeluInts[] = {{"rows"}, {"n"}, {"approximate", kFlag}};

constexpr Operand kAttentionMask = {"mask", kRead, kIndex, false,
                                    Presence::IfLastInt};
constexpr Operand kAttentionOperands[] = {{"q", kRead, kFloat, true},
                                          {"k", kRead, kFloat, true},
                                          {"v", kRead, kFloat, true},
                                          {"o", kWrite},
                                          {"lse", kWrite},
                                          {"scratch", Access::Scratch, kAny},
                                          kAttentionMask};
constexpr Operand kAttentionGradOperands[] = {
    {"q", kRead, kFloat, true},
    {"k", kRead, kFloat, true},
    {"v", kRead, kFloat, true},
    {"o", kRead},
    {"lse", kRead},
    {"dout", kRead},
    {"dq", kWrite, kFloat, true},
    {"dk", kWrite, kFloat, true},
    {"dv", kWrite, kFloat, true},
    {"scratch", Access::Scratch, kAny},
    kAttentionMask};
constexpr Int kAttentionInts[] = {{"samples"},       {"Tq"},      {"Tk"},
                                  {"heads"},         {"kvHeads"}, {"headDim"},
                                  {"qStride"},       {"kStride"}, {"vStride"},
                                  {"causal", kFlag}, {"opIndex"}, {"window"},
                                  {"hasMask", kFlag}};
constexpr StringLiteral kAttentionReals[] = {"scale", "dropout"};
constexpr Operand kBiasedAttentionOperands[] = {
    {"q", kRead, kFloat, true},
    {"k", kRead, kFloat, true},
    {"v", kRead, kFloat, true},
    {"o", kWrite},
    {"lse", kWrite},
    {"scratch", Access::Scratch, kAny},
    {"bias", kRead},
    kAttentionMask};
constexpr Operand kBiasedAttentionGradOperands[] = {
    {"q", kRead, kFloat, true},
    {"k", kRead, kFloat, true},
    {"v", kRead, kFloat, true},
    {"o", kRead},
    {"lse", kRead},
    {"dout", kRead},
    {"dq", kWrite, kFloat, true},
    {"dk", kWrite, kFloat, true},
    {"dv", kWrite, kFloat, true},
    {"scratch", Access::Scratch, kAny},
    {"bias", kRead},
    {"dbias", kWrite},
    kAttentionMask};
constexpr Int kBiasedAttentionInts[] = {{"samples"},   {"Tq"},
                                        {"Tk"},        {"heads"},
                                        {"kvHeads"},   {"headDim"},
                                        {"qStride"},   {"kStride"},
                                        {"vStride"},   {"causal", kFlag},
                                        {"opIndex"},   {"window"},
                                        {"biasHeads"}, {"hasMask", kFlag}};

constexpr Operand kReluGradOperands[] = {
    {"y", kRead}, {"dy", kRead}, {"dx", kWrite}};
constexpr Operand kRelativeBiasOperands[] = {{"table", kRead},
                                             {"bias", kWrite}};
constexpr Operand kRelativeBiasGradOperands[] = {{"dbias", kRead},
                                                 {"dtable", kAcc}};
constexpr Int kRelativeBiasInts[] = {{"samples"},     {"heads"},
                                     {"T"},           {"buckets"},
                                     {"maxDistance"}, {"bidirectional", kFlag}};
constexpr Int kRelativeBiasGradInts[] = {
    {"samples"},           {"heads"},       {"T"},
    {"buckets"},           {"maxDistance"}, {"bidirectional", kFlag},
    {"acc", IntClass::Acc}};

constexpr Operand kPatchesOperands[] = {{"images", kRead}, {"y", kWrite}};
constexpr Int kPatchesInts[] = {{"samples"},      {"channels"},  {"rows"},
                                {"cols"},         {"patchRows"}, {"patchCols"},
                                {"padded", kFlag}};

constexpr Int kWindowsInts[] = {{"samples"},      {"rows"},       {"cols"},
                                {"width"},        {"window"},     {"shift"},
                                {"merge", kFlag}, {"join", kFlag}};
constexpr Operand kWindowAttentionOperands[] = {
    {"q", kRead},    {"k", kRead},    {"v", kRead},
    {"o", kWrite},   {"lse", kWrite}, {"scratch", Access::Scratch, kAny},
    {"table", kRead}};
constexpr Int kWindowAttentionInts[] = {{"samples"}, {"down"},   {"across"},
                                        {"window"},  {"shift"},  {"heads"},
                                        {"headDim"}, {"opIndex"}};
constexpr Operand kWindowAttentionGradOperands[] = {
    {"q", kRead},     {"k", kRead},
    {"v", kRead},     {"o", kRead},
    {"lse", kRead},   {"dout", kRead},
    {"dq", kWrite},   {"dk", kWrite},
    {"dv", kWrite},   {"scratch", Access::Scratch, kAny},
    {"table", kRead}, {"dtable", kAcc}};
constexpr Int kWindowAttentionGradInts[] = {
    {"samples"}, {"down"},    {"across"},
    {"window"},  {"shift"},   {"heads"},
    {"headDim"}, {"opIndex"}, {"acc", IntClass::Acc}};
constexpr Int kDropPathInts[] = {
    {"samples"}, {"elementsPerSample"}, {"opIndex"}, {"firstLayer"}};
constexpr StringLiteral kRateReals[] = {"rate"};
constexpr Int kMeanInts[] = {{"samples"}, {"T"}, {"width"}};
constexpr Operand kMeanGradOperands[] = {{"dy", kRead}, {"dx", kWrite}};
constexpr Int kTransposeInts[] = {{"count"}, {"rows"}, {"cols"}};
constexpr Int kOwnPartInts[] = {
    {"rows"}, {"parts"}, {"partElements"}, {"ranks"}, {"back", kFlag}};

constexpr Int kDropoutInts[] = {{"samples"},
                                {"rowsPerSample"},
                                {"cols"},
                                {"opIndex"},
                                {"colSharded", kFlag}};
constexpr StringLiteral kDropoutReals[] = {"p"};
constexpr Operand kDropoutAddOperands[] = {
    {"x", kRead}, {"residual", kRead}, {"y", kWrite}};

constexpr Operand kAddOperands[] = {{"a", kRead}, {"b", kRead}, {"y", kWrite}};
constexpr Int kElementsInts[] = {{"n"}};

constexpr Operand kEmbeddingOperands[] = {
    {"tokens", kRead, kIndex}, {"table", kRead}, {"y", kWrite}};
constexpr Int kEmbeddingInts[] = {
    {"rows"}, {"width"}, {"localRows"}, {"sharded", kFlag}};
constexpr Operand kEmbeddingGradOperands[] = {
    {"tokens", kRead, kIndex}, {"dy", kRead}, {"dtable", kAcc}};
constexpr Int kEmbeddingGradInts[] = {{"rows"},
                                      {"width"},
                                      {"localRows"},
                                      {"sharded", kFlag},
                                      {"acc", IntClass::Acc},
                                      {"padding", IntClass::Free}};

constexpr Operand kPositionAddOperands[] = {
    {"x", kRead}, {"table", kRead}, {"y", kWrite}};
constexpr Int kPositionAddInts[] = {{"samples"}, {"T"}, {"width"}};
constexpr Operand kPositionGradOperands[] = {{"dy", kRead}, {"dtable", kAcc}};
constexpr Int kPositionGradInts[] = {
    {"samples"}, {"T"}, {"width"}, {"tableRows"}, {"acc", IntClass::Acc}};

constexpr Operand kSoftmaxStatsOperands[] = {
    {"logits", kRead}, {"labels", kRead, kIndex}, {"stats", kWrite}};
constexpr Int kSoftmaxStatsInts[] = {
    {"rows"}, {"localCols"}, {"globalCols"}, {"sharded", kFlag}};
constexpr Operand kCrossEntropyOperands[] = {
    {"logits", kRead},
    {"labels", Access::ReadWrite, kIndex},
    {"stats", kRead},
    {"dlogits", kWrite},
    {"loss", kWrite, ElementClass::Loss}};
constexpr Int kCrossEntropyInts[] = {
    {"rows"}, {"localCols"}, {"globalCols"}, {"sharded", kFlag}, {"shards"}};
constexpr Operand kSoftmaxCrossEntropyOperands[] = {
    {"logits", kRead},
    {"labels", Access::ReadWrite, kIndex},
    {"stats", kWrite},
    {"dlogits", kWrite},
    {"loss", kWrite, ElementClass::Loss}};
constexpr Int kSoftmaxCrossEntropyInts[] = {{"rows"}, {"cols"}};

constexpr Operand kCopyOperands[] = {{"src", kRead, kAny, true},
                                     {"dst", kWrite, kAny, true}};
constexpr Int kCopyInts[] = {
    {"rows"}, {"rowBytes"}, {"srcStrideBytes"}, {"dstStrideBytes"}};
constexpr Operand kZeroOperands[] = {{"dst", kWrite, kAny}};

constexpr Operand kOptimizerOperands[] = {{"parameter", Access::ReadWrite},
                                          {"gradient", kRead},
                                          {"state", Access::ReadWrite}};
constexpr Int kOptimizerInts[] = {
    {"optimizer", IntClass::Acc}, {"shardElements"}, {"segments"}};
constexpr Operand kNormOperands[] = {{"gradient", kRead}};
constexpr Int kNormInts[] = {{"shardElements"}, {"segments"}};
constexpr StringLiteral kFactorReals[] = {"factor"};

//===----------------------------------------------------------------------===//
// Elements that each operand needs
//===----------------------------------------------------------------------===//

int64_t gemmElements(unsigned i, Ints n) {
  switch (i) {
  case 0:
    return n[0] * n[2];
  case 1:
    return n[2] * n[1];
  case 2:
    return n[0] * n[1];
  case 3:
    return n[1];
  default:
    return 0;
  }
}

int64_t gemmGeluElements(unsigned i, Ints n) {
  if (i == 5)
    return 0;
  return i < 2 ? gemmElements(i, n) : i == 2 ? n[1] : n[0] * n[1];
}

int64_t gemmGeluGradElements(unsigned i, Ints n) {
  if (i == 4)
    return 0;
  return i < 2 ? gemmElements(i, n) : n[0] * n[1];
}

/// Operand 1 is one row, all others are rows x n.
int64_t biasElements(unsigned i, Ints n) { return i == 1 ? n[1] : n[0] * n[1]; }

int64_t layerNormElements(unsigned i, Ints n) {
  if (i == 4)
    return 2 * n[0];
  return i == 1 || i == 2 ? n[1] : n[0] * n[1];
}

int64_t layerNormGradElements(unsigned i, Ints n) {
  if (i == 2)
    return 2 * n[0];
  return i == 3 || i >= 5 ? n[1] : n[0] * n[1];
}

int64_t addLayerNormElements(unsigned i, Ints n) {
  int64_t rows = n[0] * n[1];
  if (i == 6)
    return 2 * rows;
  return i == 2 || i == 3 ? n[2] : rows * n[2];
}

int64_t layerNormAddGradElements(unsigned i, Ints n) {
  if (i == 2)
    return 2 * n[0];
  return i == 3 || i >= 6 ? n[1] : n[0] * n[1];
}

int64_t rmsNormElements(unsigned i, Ints n) {
  return i == 1 ? n[1] : i == 3 ? n[0] : n[0] * n[1];
}

int64_t rmsNormGradElements(unsigned i, Ints n) {
  return i == 2 ? n[0] : i == 3 || i == 5 ? n[1] : n[0] * n[1];
}

int64_t rotaryElements(unsigned, Ints n) { return n[0] * n[1] * n[2] * n[3]; }

int64_t allN(unsigned, Ints n) { return n[0]; }

int64_t attentionElements(unsigned i, Ints n) {
  int64_t samples = n[0], tq = n[1], tk = n[2], heads = n[3], kvHeads = n[4],
          dim = n[5];
  switch (i) {
  case 0:
    return strided(samples * tq, n[6], heads * dim);
  case 1:
    return strided(samples * tk, n[7], kvHeads * dim);
  case 2:
    return strided(samples * tk, n[8], kvHeads * dim);
  case 3:
    return samples * tq * heads * dim;
  case 4:
    return samples * heads * tq;
  case 6:
    return samples * tk;
  default:
    return 0;
  }
}

/// The forward kernel's operand of the same shape, by operand.
int64_t attentionGradElements(unsigned i, Ints n) {
  constexpr unsigned kLike[] = {0, 1, 2, 3, 4, 3, 0, 1, 2, 5, 6};
  return attentionElements(kLike[i], n);
}

int64_t biasedAttentionElements(unsigned i, Ints n) {
  if (i < 6)
    return attentionElements(i, n);
  return i == 6 ? n[0] * n[12] * (n[1] + n[2] - 1) : n[0] * n[2];
}

int64_t biasedAttentionGradElements(unsigned i, Ints n) {
  if (i < 10)
    return attentionGradElements(i, n);
  return biasedAttentionElements(i == 12 ? 7 : 6, n);
}

int64_t relativeBiasElements(unsigned i, Ints n) {
  return i == 0 ? n[3] * n[1] : n[0] * n[1] * (2 * n[2] - 1);
}

int64_t relativeBiasGradElements(unsigned i, Ints n) {
  return relativeBiasElements(1 - i, n);
}

int64_t patchesElements(unsigned i, Ints n) {
  if (n[4] == 0 || n[5] == 0) // the runtime refuses these
    return 0;
  int64_t patches =
      n[6]
          ? int64_t(llvm::divideCeil(n[2], n[4]) * llvm::divideCeil(n[3], n[5]))
          : n[2] / n[4] * (n[3] / n[5]);
  return n[0] * n[1] * (i == 0 ? n[2] * n[3] : patches * n[4] * n[5]);
}

int64_t windowsElements(unsigned i, Ints n) {
  if (n[4] == 0) // the runtime refuses it
    return 0;
  bool grid = (i == 0) != (n[7] != 0);
  int64_t windows =
      int64_t(llvm::divideCeil(n[1], n[4]) * llvm::divideCeil(n[2], n[4]));
  return n[0] * n[3] * (grid ? n[1] * n[2] : windows * n[4] * n[4]);
}

int64_t windowAttentionElements(unsigned i, Ints n) {
  int64_t rows = n[0] * n[1] * n[2] * n[3] * n[3] * n[5], side = 2 * n[3] - 1;
  switch (i) {
  case 4:
    return rows;
  case 5:
    return 0;
  case 6:
    return side * side * n[5];
  default:
    return rows * n[6];
  }
}

int64_t windowAttentionGradElements(unsigned i, Ints n) {
  constexpr unsigned kLike[] = {0, 1, 2, 3, 4, 3, 0, 1, 2, 5, 6, 6};
  return windowAttentionElements(kLike[i], n);
}

int64_t dropPathElements(unsigned, Ints n) { return n[0] * n[1]; }

int64_t meanElements(unsigned i, Ints n) {
  return n[0] * n[2] * (i == 0 ? n[1] : 1);
}

int64_t meanGradElements(unsigned i, Ints n) { return meanElements(1 - i, n); }

int64_t transposeElements(unsigned, Ints n) { return n[0] * n[1] * n[2]; }

int64_t ownPartElements(unsigned i, Ints n) {
  bool whole = (i == 0) == (n[4] == 0);
  return n[0] * n[2] * (whole ? n[1] : 1);
}

int64_t dropoutElements(unsigned, Ints n) { return n[0] * n[1] * n[2]; }

int64_t embeddingElements(unsigned i, Ints n) {
  return i == 0 ? n[0] : (i == 1 ? n[2] * n[1] : n[0] * n[1]);
}

int64_t embeddingGradElements(unsigned i, Ints n) {
  return i == 0 ? n[0] : (i == 1 ? n[0] * n[1] : n[2] * n[1]);
}

int64_t positionAddElements(unsigned i, Ints n) {
  return i == 1 ? n[1] * n[2] : n[0] * n[1] * n[2];
}

int64_t positionGradElements(unsigned i, Ints n) {
  return i == 1 ? n[3] * n[2] : n[0] * n[1] * n[2];
}

int64_t softmaxStatsElements(unsigned i, Ints n) {
  return i == 0 ? n[0] * n[1] : (i == 1 ? n[0] : 3 * n[0]);
}

int64_t crossEntropyElements(unsigned i, Ints n) {
  switch (i) {
  case 1:
    return n[0];
  case 2:
    return n[4] * n[0] * 3;
  case 4:
    return 1;
  default:
    return n[0] * n[1];
  }
}

int64_t softmaxCrossEntropyElements(unsigned i, Ints n) {
  const int64_t undivided[] = {n[0], n[1], n[1], 0, 1};
  return crossEntropyElements(i, undivided);
}

int64_t copyElements(unsigned i, Ints n) {
  return strided(n[0], i == 0 ? n[2] : n[3], n[1]);
}

int64_t noElements(unsigned, Ints) { return 0; }

/// The state's size depends on the parameter's type: the verifier knows.
int64_t optimizerElements(unsigned i, Ints n) { return i == 2 ? 0 : n[1]; }

//===----------------------------------------------------------------------===//
// The table, by kernel number
//===----------------------------------------------------------------------===//

const KernelInfo kKernels[] = {
    {Kernel::Gemm, kGemmOperands, kGemmInts, {}, Tail::None, gemmElements},
    {Kernel::BiasAdd,
     kBiasAddOperands,
     kRowsInts,
     {},
     Tail::None,
     biasElements},
    {Kernel::BiasGrad,
     kBiasGradOperands,
     kRowsAccInts,
     {},
     Tail::None,
     biasElements},
    {Kernel::LayerNorm, kLayerNormOperands, kRowsInts, kEpsReals, Tail::None,
     layerNormElements},
    {Kernel::LayerNormGrad,
     kLayerNormGradOperands,
     kRowsAccInts,
     {},
     Tail::None,
     layerNormGradElements},
    {Kernel::Gelu, kUnaryOperands, kGeluInts, {}, Tail::None, allN},
    {Kernel::GeluGrad, kGeluGradOperands, kGeluInts, {}, Tail::None, allN},
    {Kernel::BiasGelu,
     kBiasGeluOperands,
     kBiasGeluInts,
     {},
     Tail::None,
     biasElements},
    {Kernel::Attention, kAttentionOperands, kAttentionInts, kAttentionReals,
     Tail::None, attentionElements},
    {Kernel::AttentionGrad, kAttentionGradOperands, kAttentionInts,
     kAttentionReals, Tail::None, attentionGradElements},
    {Kernel::Dropout, kUnaryOperands, kDropoutInts, kDropoutReals, Tail::None,
     dropoutElements},
    {Kernel::DropoutAdd, kDropoutAddOperands, kDropoutInts, kDropoutReals,
     Tail::None, dropoutElements},
    {Kernel::Add, kAddOperands, kElementsInts, {}, Tail::None, allN},
    {Kernel::Embedding,
     kEmbeddingOperands,
     kEmbeddingInts,
     {},
     Tail::None,
     embeddingElements},
    {Kernel::EmbeddingGrad,
     kEmbeddingGradOperands,
     kEmbeddingGradInts,
     {},
     Tail::None,
     embeddingGradElements},
    {Kernel::PositionAdd,
     kPositionAddOperands,
     kPositionAddInts,
     {},
     Tail::None,
     positionAddElements},
    {Kernel::PositionGrad,
     kPositionGradOperands,
     kPositionGradInts,
     {},
     Tail::None,
     positionGradElements},
    {Kernel::SoftmaxStats,
     kSoftmaxStatsOperands,
     kSoftmaxStatsInts,
     {},
     Tail::None,
     softmaxStatsElements},
    {Kernel::CrossEntropy,
     kCrossEntropyOperands,
     kCrossEntropyInts,
     {},
     Tail::None,
     crossEntropyElements},
    {Kernel::Copy, kCopyOperands, kCopyInts, {}, Tail::None, copyElements},
    {Kernel::Zero, kZeroOperands, {}, {}, Tail::None, noElements},
    {Kernel::Optimizer,
     kOptimizerOperands,
     kOptimizerInts,
     {},
     Tail::Segments,
     optimizerElements},
    {Kernel::Norm, kNormOperands, kNormInts, {}, Tail::Segments, allN},
    {Kernel::Scale, kUnaryOperands, kElementsInts, kFactorReals, Tail::None,
     allN},
    {Kernel::AddLayerNorm, kAddLayerNormOperands, kAddLayerNormInts,
     kEpsDropoutReals, Tail::None, addLayerNormElements},
    {Kernel::LayerNormAddGrad,
     kLayerNormAddGradOperands,
     kRowsAccInts,
     {},
     Tail::None,
     layerNormAddGradElements},
    {Kernel::GemmGelu,
     kGemmGeluOperands,
     kGemmGeluInts,
     {},
     Tail::None,
     gemmGeluElements},
    {Kernel::GemmGeluGrad,
     kGemmGeluGradOperands,
     kGemmGeluGradInts,
     {},
     Tail::None,
     gemmGeluGradElements},
    {Kernel::GemmBiasGrad,
     kGemmBiasGradOperands,
     kGemmBiasGradInts,
     {},
     Tail::None,
     gemmElements},
    {Kernel::RmsNorm, kRmsNormOperands, kRowsInts, kEpsReals, Tail::None,
     rmsNormElements},
    {Kernel::RmsNormGrad,
     kRmsNormGradOperands,
     kRowsAccInts,
     {},
     Tail::None,
     rmsNormGradElements},
    {Kernel::Rotary, kUnaryOperands, kRotaryInts, kFactorReals, Tail::Pairs,
     rotaryElements},
    {Kernel::GatedSilu, kGatedOperands, kElementsInts, {}, Tail::None, allN},
    {Kernel::GatedSiluGrad,
     kGatedGradOperands,
     kElementsInts,
     {},
     Tail::None,
     allN},
    {Kernel::Patches,
     kPatchesOperands,
     kPatchesInts,
     {},
     Tail::None,
     patchesElements},
    {Kernel::Relu, kUnaryOperands, kElementsInts, {}, Tail::None, allN},
    {Kernel::ReluGrad, kReluGradOperands, kElementsInts, {}, Tail::None, allN},
    {Kernel::GatedGelu, kGatedOperands, kElementsInts, {}, Tail::None, allN},
    {Kernel::GatedGeluGrad,
     kGatedGradOperands,
     kElementsInts,
     {},
     Tail::None,
     allN},
    {Kernel::RelativeBias,
     kRelativeBiasOperands,
     kRelativeBiasInts,
     {},
     Tail::None,
     relativeBiasElements},
    {Kernel::RelativeBiasGrad,
     kRelativeBiasGradOperands,
     kRelativeBiasGradInts,
     {},
     Tail::None,
     relativeBiasGradElements},
    {Kernel::BiasedAttention, kBiasedAttentionOperands, kBiasedAttentionInts,
     kAttentionReals, Tail::None, biasedAttentionElements},
    {Kernel::BiasedAttentionGrad, kBiasedAttentionGradOperands,
     kBiasedAttentionInts, kAttentionReals, Tail::None,
     biasedAttentionGradElements},
    {Kernel::Windows,
     kUnaryOperands,
     kWindowsInts,
     {},
     Tail::None,
     windowsElements},
    {Kernel::WindowAttention, kWindowAttentionOperands, kWindowAttentionInts,
     kAttentionReals, Tail::None, windowAttentionElements},
    {Kernel::WindowAttentionGrad, kWindowAttentionGradOperands,
     kWindowAttentionGradInts, kAttentionReals, Tail::None,
     windowAttentionGradElements},
    {Kernel::DropPath, kUnaryOperands, kDropPathInts, kRateReals, Tail::None,
     dropPathElements},
    {Kernel::Mean, kUnaryOperands, kMeanInts, {}, Tail::None, meanElements},
    {Kernel::MeanGrad,
     kMeanGradOperands,
     kMeanInts,
     {},
     Tail::None,
     meanGradElements},
    {Kernel::Transpose,
     kUnaryOperands,
     kTransposeInts,
     {},
     Tail::None,
     transposeElements},
    {Kernel::OwnPart,
     kUnaryOperands,
     kOwnPartInts,
     {},
     Tail::None,
     ownPartElements},
    {Kernel::SoftmaxCrossEntropy,
     kSoftmaxCrossEntropyOperands,
     kSoftmaxCrossEntropyInts,
     {},
     Tail::None,
     softmaxCrossEntropyElements},
};

} // namespace

const KernelInfo &mlir::grt::getKernelInfo(Kernel kernel) {
  const KernelInfo &info = kKernels[static_cast<uint32_t>(kernel)];
  assert(info.kernel == kernel && "kernel table out of order");
  return info;
}

std::optional<int64_t> KernelInfo::getInt(StringRef name,
                                          ArrayRef<int64_t> intValues) const {
  for (auto [info, value] : llvm::zip(ints, intValues))
    if (info.name == name)
      return value;
  return std::nullopt;
}

SmallVector<unsigned> KernelInfo::operandsOf(ArrayRef<int64_t> intValues,
                                             size_t buffers) const {
  bool last = intValues.size() >= ints.size() && !ints.empty() &&
              intValues[ints.size() - 1] != 0;
  SmallVector<unsigned> result;
  for (auto [i, operand] : llvm::enumerate(operands))
    if (operand.presence == Presence::Always ||
        (operand.presence == Presence::IfLastInt && last) ||
        (operand.presence == Presence::Optional && result.size() < buffers))
      result.push_back(unsigned(i));
  return result;
}
