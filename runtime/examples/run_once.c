/* Runs a model once: run_once model.pte input.bin output.bin. The files hold a tensor's elements. */
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
  slipway_method* method = NULL;
  slipway_spec spec;
  slipway_tensor input = {0}, output = {0};
  must(slipway_program_load(argc == 4 ? argv[1] : NULL, NULL, &program));
  must(slipway_program_find_method(program, "forward", &method));
  must(slipway_method_input_spec(method, 0, &spec));
  input.dtype = spec.dtype;
  input.rank = spec.rank;
  size_t size = slipway_dtype_size(spec.dtype);
  for (uint32_t i = 0; i < spec.rank; ++i) {
    input.sizes[i] = spec.sizes[i];
    size *= (size_t)spec.sizes[i];
  }
  input.readable = size + SLIPWAY_READ_BEHIND; /* so that the input is read where it is */
  input.data = calloc(1, (size_t)input.readable);
  FILE* file = fopen(argv[2], "rb");
  if (file == NULL || fread(input.data, 1, size, file) != size || fclose(file) != 0) return 1;
  must(slipway_method_forward(method, &input, 1));
  must(slipway_method_output(method, 0, &output));
  size = slipway_dtype_size(output.dtype);
  for (uint32_t i = 0; i < output.rank; ++i) size *= (size_t)output.sizes[i];
  file = fopen(argv[3], "wb");
  if (file == NULL || fwrite(output.data, 1, size, file) != size || fclose(file) != 0) return 1;
  slipway_program_free(program);
  free(input.data);
  return 0;
}
