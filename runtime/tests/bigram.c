/*===- bigram.c - A program as the compiler would write it, by hand -------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A bigram model over bytes: a table of 256 x 256 logits and cross entropy, on
// RANKS (1 or 2) data-parallel ranks. Plain C, so that the ABI is seen to be C.
//
//===----------------------------------------------------------------------===*/

#include "grt/abi.h"

#include <stddef.h>

/* Batch 4 in 2 micro-batches, 8 tokens a sample. */
#if RANKS == 1
#define DEVICES "[0]"
#define LEVELS "[]"
#define SAMPLES 2
#define ROWS 16
#define LOGIT_BYTES 16384
#define DATA_BYTES 256
#define COPY_BYTES 128
#else
#define DEVICES "[0,1]"
#define LEVELS "[{\"kind\":\"dp\",\"degree\":2,\"stride\":1}]"
#define SAMPLES 1
#define ROWS 8
#define LOGIT_BYTES 8192
#define DATA_BYTES 128
#define COPY_BYTES 64
#endif
#define TABLE_ELEMENTS 65536
#define TABLE_BYTES 262144

/* Programs that differ in nothing else have different hashes. */
#ifndef MADE
#define MADE "by hand"
#endif

/* The plug-in that runs it. */
#ifndef BACKEND
#define BACKEND "cpu"
#endif

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

/* Temporaries follow the slot. Regions: parameters, gradients, m and v, two
   slots of input and kept values, statistics, two boundary buffers, data,
   losses, step. */
#if RANKS == 1
#define SLOT_BYTES 32768
#define TRANSIENT 1081344
#define BOUNDARY 1081600
#define DATA 1097984
#define LABELS 1098112
#define LOSS 1098240
#define STEP 1098304
#define ARENA 1098432
#else
#define SLOT_BYTES 16384
#define TRANSIENT 1064960
#define BOUNDARY 1065216
#define DATA 1073408
#define LABELS 1073472
#define LOSS 1073536
#define STEP 1073600
#define ARENA 1073728
#endif

static const char
    manifest
        [] =
            "{\"abi\":" TEXT(GRT_ABI_VERSION) ",\"tool-version\":\"" MADE
            "\",\"target\":{\"backend\":\"" BACKEND "\"},"
            "\"dtype\":\"f32\",\"world\":" TEXT(
                RANKS) ",\"batch\":4,"
                       "\"micro-batches\":2,\"data\":[{\"name\":\"tokens\",\"kind\":\"tokens\",\"type\":\"i32\",\"shape\":[8],\"bytes-per-sample\":32,\"below\":256,\"counted\":false},"
"{\"name\":\"labels\",\"kind\":\"labels\",\"type\":\"i32\",\"shape\":[8],\"bytes-per-sample\":32,\"below\":256,\"counted\":true}],"
                       "\"schedule\":"
                       "\"gpipe\","
                       "\"training\":{\"optimizer\":\"adamw\",\"clip\":true},"
                       "\"model-config\":{\"model_type\":\"bigram\",\"vocab_"
                       "size\":256}"
                       ","
                       "\"predicted-step-ms\":1.5,\"flops-per-sample\":8000,"
                       "\"peak-"
                       "flops\":1e9,"
                       "\"functions\":[\"embed.forward\",\"embed.backward\","
                       "\"embed."
                       "update\","
                       "\"loss.forward\",\"loss.backward\",\"embed.norm\"],"
                       "\"parameters\":[{\"name\":\"table.weight\",\"shape\":["
                       "256,256],"
                       "\"init\":{\"kind\":\"normal\",\"std\":0.02},\"decay\":"
                       "true}],"
                       "\"exchanges\":[],\"ties\":[],\"roles\":[{\"stage\":0,"
                       "\"devices\":" DEVICES ",\"arena\":{\"bytes\":" TEXT(
                           ARENA) ","
                                  "\"parameters\":[0,262144],\"gradients\":["
                                  "262144,"
                                  "262144],"
                                  "\"optimizer\":[524288,524288],\"slots\":["
                                  "1048576," TEXT(
                                      SLOT_BYTES) "],"
                                                  "\"transient\":[" TEXT(
                                                      TRANSIENT) ",256],"
                                                                 "\"boundary\":"
                                                                 "[[" TEXT(BOUNDARY) "," TEXT(
                                                                     LOGIT_BYTES) "],"
                                                                                  "[" TEXT(
                                                                                      BOUNDARY) "," TEXT(LOGIT_BYTES) "]],"
                                                                                                                      "\"data\":[" TEXT(DATA) "," TEXT(DATA_BYTES) "],"
                                                                                                                                                                   "\"loss\":[" TEXT(LOSS) ",16],\"step\":[" TEXT(STEP) ",128]},"
                                                                                                                                                                                                                        "\"chunks\":[{\"number\":0,\"layer-count\":2,\"slots\":1}],\"slot-bytes\":" TEXT(SLOT_BYTES) ",\"data\":[{\"datum\":0,\"extent\":[" TEXT(DATA) "," TEXT(COPY_BYTES) "]},{\"datum\":1,\"extent\":[" TEXT(LABELS) "," TEXT(COPY_BYTES) "]}],\"layers\":["
                                                                                                                                                                                                                                                                            "{\"name\":\"embed\",\"index\":0,\"strategy\":\"by hand\","
                                                                                                                                                                                                                                                                            "\"levels\":" LEVELS ",\"samples\":" TEXT(SAMPLES) ","
                                                                                                                                                                                                                                                                                                                               "\"forward\":0,\"recompute\":null,\"backward\":1,\"update\":2,\"norm\":5,"
                                                                                                                                                                                                                                                                                                                               "\"tensors\":[{\"parameter\":0,\"group\":0,\"offset\":0,"
                                                                                                                                                                                                                                                                                                                               "\"view\":[256,256],\"local-shape\":[256,256],\"tp-dim\":-1}],"
                                                                                                                                                                                                                                                                                                                               "\"groups\":[{\"elements\":65536,\"shard-elements\":65536}],"
                                                                                                                                                                                                                                                                                                                               "\"parameter\":0,\"gradient\":262144,\"optimizer\":524288,"
                                                                                                                                                                                                                                                                                                                               "\"stash\":0,\"input-bytes\":0,\"stash-bytes\":0,"
                                                                                                                                                                                                                                                                                                                               "\"transient\":" TEXT(SLOT_BYTES) ",\"transient-bytes\":0,"
                                                                                                                                                                                                                                                                                                                                                                 "\"data\":[0],"
                                                                                                                                                                                                                                                                                                                                                                 "\"output\":{\"kind\":\"slot\",\"layer\":1},"
                                                                                                                                                                                                                                                                                                                                                                 "\"grad-in\":0,\"grad-out\":null},"
                                                                                                                                                                                                                                                                                                                                                                 "{\"name\":\"loss\",\"index\":1,\"strategy\":\"by hand\","
                                                                                                                                                                                                                                                                                                                                                                 "\"levels\":" LEVELS ",\"samples\":" TEXT(SAMPLES) ","
                                                                                                                                                                                                                                                                                                                                                                                                                    "\"forward\":3,\"recompute\":null,\"backward\":4,\"update\":null,"
                                                                                                                                                                                                                                                                                                                                                                                                                    "\"tensors\":[],\"groups\":[],\"parameter\":0,\"gradient\":0,"
                                                                                                                                                                                                                                                                                                                                                                                                                    "\"optimizer\":0,\"stash\":0,\"input-bytes\":" TEXT(LOGIT_BYTES) ","
                                                                                                                                                                                                                                                                                                                                                                                                                                                                                     "\"stash-bytes\":" TEXT(LOGIT_BYTES) ","
                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                          "\"transient\":" TEXT(SLOT_BYTES) ",\"transient-bytes\":256,"
                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                            "\"data\":[1],\"output\":{\"kind\":\"loss\"},"
                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                            "\"grad-in\":null,\"grad-out\":0}]}]}";

#define CALL(kernel, buffers, ints, name)                                      \
  {kernel,                                                                     \
   sizeof(buffers) / sizeof(grt_buffer),                                       \
   sizeof(ints) / sizeof(int64_t),                                             \
   0,                                                                          \
   buffers,                                                                    \
   ints,                                                                       \
   NULL,                                                                       \
   name}

static const grt_buffer embedBuffers[] = {
    {GRT_REGION_DATA, GRT_I32, 0, ROWS * 4},
    {GRT_REGION_PARAMETER, GRT_F32, 0, TABLE_BYTES},
    {GRT_REGION_OUTPUT, GRT_F32, 0, LOGIT_BYTES}};
static const int64_t embedInts[] = {ROWS, 256, 256, 0};
static const grt_kernel_op embed =
    CALL(GRT_KERNEL_EMBEDDING, embedBuffers, embedInts, "table");

static const grt_buffer gradBuffers[] = {
    {GRT_REGION_DATA, GRT_I32, 0, ROWS * 4},
    {GRT_REGION_GRAD_IN, GRT_F32, 0, LOGIT_BYTES},
    {GRT_REGION_GRADIENT, GRT_F32, 0, TABLE_BYTES}};
static const int64_t gradInts[] = {ROWS, 256, 256, 0, 2};
static const grt_kernel_op grad =
    CALL(GRT_KERNEL_EMBEDDING_GRAD, gradBuffers, gradInts, "table");

static const grt_buffer updateBuffers[] = {
    {GRT_REGION_PARAMETER, GRT_F32, 0, TABLE_BYTES},
    {GRT_REGION_GRADIENT, GRT_F32, 0, TABLE_BYTES},
    {GRT_REGION_OPTIMIZER, GRT_F32, 0, 2 * TABLE_BYTES}};
static const int64_t updateInts[] = {2, TABLE_ELEMENTS, 1,
                                     0, TABLE_ELEMENTS, 1};
static const grt_kernel_op update =
    CALL(GRT_KERNEL_OPTIMIZER, updateBuffers, updateInts, "update");

static const grt_buffer normBuffers[] = {
    {GRT_REGION_GRADIENT, GRT_F32, 0, TABLE_BYTES}};
static const int64_t normInts[] = {TABLE_ELEMENTS, 1, 0, TABLE_ELEMENTS, 1};
static const grt_kernel_op norm =
    CALL(GRT_KERNEL_NORM, normBuffers, normInts, "norm");

static const grt_buffer statsBuffers[] = {
    {GRT_REGION_INPUT, GRT_F32, 0, LOGIT_BYTES},
    {GRT_REGION_DATA, GRT_I32, 0, ROWS * 4},
    {GRT_REGION_TRANSIENT, GRT_F32, 0, ROWS * 12}};
static const int64_t statsInts[] = {ROWS, 256, 256, 0};
static const grt_kernel_op stats =
    CALL(GRT_KERNEL_SOFTMAX_STATS, statsBuffers, statsInts, "loss");

static const grt_buffer lossBuffers[] = {
    {GRT_REGION_INPUT, GRT_F32, 0, LOGIT_BYTES},
    {GRT_REGION_DATA, GRT_I32, 0, ROWS * 4},
    {GRT_REGION_TRANSIENT, GRT_F32, 0, ROWS * 12},
    {GRT_REGION_STASH, GRT_F32, 0, LOGIT_BYTES},
    {GRT_REGION_LOSS, GRT_F64, 0, 8}};
static const int64_t lossInts[] = {ROWS, 256, 256, 0, 1};
static const grt_kernel_op loss =
    CALL(GRT_KERNEL_CROSS_ENTROPY, lossBuffers, lossInts, "loss");

static const grt_buffer copyBuffers[] = {
    {GRT_REGION_STASH, GRT_F32, 0, LOGIT_BYTES},
    {GRT_REGION_GRAD_OUT, GRT_F32, 0, LOGIT_BYTES}};
static const int64_t copyInts[] = {1, LOGIT_BYTES, LOGIT_BYTES, LOGIT_BYTES};
static const grt_kernel_op copy =
    CALL(GRT_KERNEL_COPY, copyBuffers, copyInts, "gradient");

static int32_t embedForward(grt_context *c) { return grt_launch(c, &embed); }
static int32_t embedBackward(grt_context *c) { return grt_launch(c, &grad); }
static int32_t embedUpdate(grt_context *c) { return grt_launch(c, &update); }
static int32_t embedNorm(grt_context *c) { return grt_launch(c, &norm); }

static int32_t lossForward(grt_context *c) {
  int32_t status = grt_begin(c, &statsBuffers[2]);
  if (!status)
    status = grt_launch(c, &stats);
  if (!status)
    status = grt_begin(c, &lossBuffers[3]);
  if (!status)
    status = grt_launch(c, &loss);
  return status ? status : grt_end(c, &statsBuffers[2]);
}

static int32_t lossBackward(grt_context *c) {
  int32_t status = grt_launch(c, &copy);
  return status ? status : grt_end(c, &copyBuffers[0]);
}

static const grt_function functions[] = {embedForward, embedBackward,
                                         embedUpdate,  lossForward,
                                         lossBackward, embedNorm};

static const grt_task steady[] = {{.kind = GRT_TASK_FORWARD},
                                  {.kind = GRT_TASK_BACKWARD},
                                  {.kind = GRT_TASK_FORWARD, .micro_batch = 1},
                                  {.kind = GRT_TASK_BACKWARD, .micro_batch = 1}};
static const grt_task stepEnd[] = {{.kind = GRT_TASK_SYNC_GRADIENTS},
                                   {.kind = GRT_TASK_NORM},
                                   {.kind = GRT_TASK_UPDATE}};
static const grt_task evaluate[] = {{.kind = GRT_TASK_FORWARD},
                                    {.kind = GRT_TASK_FORWARD, .micro_batch = 1}};
static const grt_schedule schedule = {
    {{NULL, 0}, {steady, 4}, {stepEnd, 3}, {NULL, 0}, {evaluate, 2}}, NULL, 0};

/* The struct tag and the exported symbol share a name; C keeps them apart only
   under another identifier, so the symbol is named by hand. */
const struct grt_program programTable __asm__("grt_program") = {
    GRT_ABI_VERSION,
    6,
    1,
    sizeof(grt_task),
    sizeof(grt_transfer_part),
    functions,
    &schedule,
    manifest,
    sizeof(manifest) - 1};
