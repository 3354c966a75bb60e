#include <math.h>
#include <slipway/slipway.h>
#include <stdio.h>

/* The same layer as in test_package.cpp, through the C API. */
int main(int argc, char** argv) {
  slipway_program* program = NULL;
  slipway_method* method = NULL;
  slipway_tensor output = {0};
  float x = 100.0F;
  slipway_tensor input = {0};
  input.data = &x;
  input.dtype = SLIPWAY_FLOAT32;
  input.rank = 2;
  input.sizes[0] = input.sizes[1] = 1;
  slipway_error* error = slipway_program_load(argc == 2 ? argv[1] : "", NULL, &program);
  if (error == NULL) error = slipway_program_find_method(program, "forward", &method);
  if (error == NULL) error = slipway_method_forward(method, &input, 1);
  if (error == NULL) error = slipway_method_output(method, 0, &output);
  if (error != NULL) {
    fprintf(stderr, "%s\n%s\n", slipway_error_message(error), slipway_error_fix(error));
    return 1;
  }
  const float y = ((const float*)output.data)[0];
  printf("slipway %s: C, %g\n", slipway_version(), y);
  slipway_program_free(program);
  return fabsf(y + 0.2122384F) < 1e-5F ? 0 : 1;
}
