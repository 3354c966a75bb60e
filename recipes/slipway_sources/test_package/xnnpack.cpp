#include <xnnpack.h>

#include <cstdio>
#include <limits>

// A layer with two inputs and one output, 2a + 3b + 1, computed for four rows.
int main() {
  const float kernel[] = {2, 3}, bias[] = {1}, most = std::numeric_limits<float>::infinity();
  const float rows[8 + XNN_EXTRA_BYTES / sizeof(float)] = {0, 0, 1, 0, 0, 1, -2, 5};
  const float expected[] = {1, 3, 4, 12};
  float found[4 + XNN_EXTRA_BYTES / sizeof(float)] = {};
  xnn_operator_t layer = nullptr;
  bool good = xnn_initialize(nullptr) == xnn_status_success &&
              xnn_create_fully_connected_nc_f32(2, 1, 2, 1, kernel, bias, -most, most, 0, nullptr, nullptr,
                                                &layer) == xnn_status_success &&
              xnn_reshape_fully_connected_nc_f32(layer, 4, nullptr) == xnn_status_success &&
              xnn_setup_fully_connected_nc_f32(layer, rows, found) == xnn_status_success &&
              xnn_run_operator(layer, nullptr) == xnn_status_success;
  for (int i = 0; i < 4; ++i) good = good && found[i] == expected[i];
  xnn_delete_operator(layer);
  std::puts(good ? "xnnpack: four rows through a layer" : "xnnpack: wrong");
  return good ? 0 : 1;
}
