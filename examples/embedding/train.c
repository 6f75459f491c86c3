/* A program in C that trains a model in its own process (docs/embedding.md):

     train PROGRAM.gvx TEXT STEPS [CHECKPOINTS]

   TEXT is read as bytes, which are its tokens, one window after the other. With
   CHECKPOINTS a run writes one at its end, and the next goes on from it.
   Started by torchrun or mpirun it is one of several processes. */

#include <grt/abi.h>
#include <grt/c_api.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Ends the program where a call has failed. */
static void check(int32_t code) {
  if (code == GRT_CODE_DONE)
    return;
  fprintf(stderr, "train: %s\n", grt_error_text());
  exit(code);
}

struct text {
  unsigned char *bytes;
  size_t count;
};

static struct text read_text(const char *path) {
  struct text text = {NULL, 0};
  FILE *file = fopen(path, "rb");
  long size = -1;
  if (file && fseek(file, 0, SEEK_END) == 0)
    size = ftell(file);
  if (size > 0 && (text.bytes = malloc((size_t)size))) {
    rewind(file);
    text.count = fread(text.bytes, 1, (size_t)size, file);
  }
  if (file)
    fclose(file);
  return text;
}

/* The batch of a step: windows of the text, and the bytes that follow each. */
static void fill(struct text text, uint64_t step, int64_t samples,
                 int64_t length, int32_t *tokens, int32_t *labels) {
  size_t window = (size_t)length, at = (size_t)(step * (uint64_t)samples);
  for (int64_t sample = 0; sample < samples; ++sample, ++at) {
    size_t first = at * window % (text.count - window);
    for (size_t i = 0; i < window; ++i) {
      *tokens++ = text.bytes[first + i];
      *labels++ = text.bytes[first + i + 1];
    }
  }
}

static void print(const grt_session_facts *facts,
                  const grt_step_result *result) {
  /* Where losses are late the first call ends no step. */
  if (result->step && facts->leads)
    printf("step %llu loss %.6f\n", (unsigned long long)result->step,
           result->loss);
}

int main(int argc, char **argv) {
  if (argc < 4) {
    fprintf(stderr, "usage: train PROGRAM.gvx TEXT STEPS [CHECKPOINTS]\n");
    return GRT_CODE_INVALID;
  }
  const uint64_t steps = strtoull(argv[3], NULL, 10);
  const char *checkpoints = argc > 4 ? argv[4] : NULL;
  struct stat found;

  grt_session_options options = {sizeof options, argv[1]};
  options.seed = 1;
  options.processes = GRT_PROCESSES_OF_LAUNCHER;
  if (checkpoints && stat(checkpoints, &found) == 0)
    options.resume = checkpoints;
  grt_session *session = NULL;
  check(grt_session_create(&options, &session));

  grt_session_facts facts = {sizeof facts};
  check(grt_session_facts_of(session, &facts));
  grt_datum tokens_of = {sizeof tokens_of}, labels_of = {sizeof labels_of};
  if (facts.data == 2) {
    check(grt_session_datum(session, 0, &tokens_of));
    check(grt_session_datum(session, 1, &labels_of));
  }
  struct text text = read_text(argv[2]);
  int64_t length = tokens_of.dimensions == 1 ? tokens_of.shape[0] : 0;
  if (length == 0 || labels_of.dimensions != 1 ||
      labels_of.shape[0] != length || tokens_of.type != GRT_I32 ||
      tokens_of.below < 256 || text.count < (size_t)length + 2) {
    fprintf(stderr, "train: expected a program that reads tokens of bytes and "
                    "labels, and a text longer than a sample\n");
    return GRT_CODE_INVALID;
  }

  grt_hyperparameters values = {sizeof values};
  check(grt_session_hyperparameters(session, &values));
  values.learning_rate = 1e-3;
  check(grt_session_set_hyperparameters(session, &values));

  /* What a call reads is the caller's again as soon as it has returned. */
  size_t count = (size_t)(facts.batch * length);
  int32_t *tokens = malloc(count * sizeof *tokens);
  int32_t *labels = malloc(count * sizeof *labels);
  if (!tokens || !labels)
    return GRT_CODE_MEMORY;
  const grt_array batch[2] = {{tokens, count * sizeof *tokens},
                              {labels, count * sizeof *labels}};
  grt_step_result result = {sizeof result};
  for (uint64_t step = facts.steps; step < steps; ++step) {
    fill(text, step, facts.batch, length, tokens, labels);
    check(grt_session_step(session, batch, 2, &result));
    print(&facts, &result);
  }
  check(grt_session_flush(session, &result));
  print(&facts, &result);

  if (checkpoints)
    check(grt_session_checkpoint(session, checkpoints, 1));
  grt_rank_memory memory = {sizeof memory};
  check(grt_session_memory(session, 0, &memory));
  if (facts.leads)
    printf("rank 0: %llu bytes planned\n", (unsigned long long)memory.planned);
  check(grt_session_close(session));
  free(labels);
  free(tokens);
  free(text.bytes);
  return 0;
}
