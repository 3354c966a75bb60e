/* Goes on with a text: generate model.pte ids.txt 32. Numbers of tokens in and out, each as it comes. */
#include <inttypes.h>
#include <slipway/slipway.h>
#include <stdio.h>
#include <stdlib.h>

static void must(slipway_error* error) {
  if (error != NULL) {
    fprintf(stderr, "%s\n%s\n", slipway_error_message(error), slipway_error_fix(error));
    exit((int)slipway_error_code(error));
  }
}

int main(int argc, char** argv) {
  slipway_program* program = NULL;
  slipway_session* session = NULL;
  int64_t ids[4096];
  size_t count = 0, stop_count = 0;
  must(slipway_program_load(argc == 4 ? argv[1] : NULL, NULL, &program));
  must(slipway_session_create(program, NULL, &session));
  must(slipway_session_set_sampling(session, 0, 0, 1, 0)); /* 0.7, 40, 0.95, 1: another text for each seed */
  FILE* file = fopen(argv[2], "r");
  if (file == NULL) return 3;
  while (count < 4096 && fscanf(file, "%" SCNd64, &ids[count]) == 1) ++count;
  fclose(file);
  const int64_t* stops = slipway_session_stops(session, &stop_count);
  for (int left = atoi(argv[3]); left > 0; --left) {
    must(slipway_session_feed(session, ids, count));
    must(slipway_session_sample(session, ids));
    count = 1;
    printf("%" PRId64 "\n", ids[0]);
    fflush(stdout);
    for (size_t i = 0; i < stop_count; ++i) {
      if (ids[0] == stops[i]) left = 0;
    }
    if (slipway_session_position(session) == slipway_session_context(session)) break;
  }
  slipway_program_free(program);
  return 0;
}
