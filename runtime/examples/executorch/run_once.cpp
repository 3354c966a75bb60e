// Runs a model once: run_once model.pte input.bin output.bin. The files hold a tensor's elements.
#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <vector>

using executorch::extension::from_blob;
using executorch::extension::Module;

template <typename T>
static T must(executorch::runtime::Result<T> result, const char* what) {
  if (!result.ok()) {
    std::fprintf(stderr, "%s: %s\n", what, executorch::runtime::to_string(result.error()));
    std::exit(1);
  }
  return std::move(*result);
}

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: run_once model.pte input.bin output.bin\n");
    return 2;
  }
  Module module(argv[1]);
  const auto input = must(must(module.method_meta("forward"), argv[1]).input_tensor_meta(0), "input 0");
  std::ifstream file(argv[2], std::ios::binary);
  std::vector<char> data{std::istreambuf_iterator<char>(file), {}};
  if (data.size() != input.nbytes()) {
    std::fprintf(stderr, "%s has %zu bytes, the model takes %zu\n", argv[2], data.size(), input.nbytes());
    return 1;
  }
  const std::vector<executorch::aten::SizesType> sizes(input.sizes().begin(), input.sizes().end());
  const auto outputs = must(module.forward(from_blob(data.data(), sizes, input.scalar_type())), "forward");
  const auto& output = outputs.at(0).toTensor();
  const auto* bytes = static_cast<const char*>(output.const_data_ptr());
  std::ofstream(argv[3], std::ios::binary).write(bytes, static_cast<std::streamsize>(output.nbytes()));
  if (output.scalar_type() == executorch::aten::ScalarType::Float) {
    for (ssize_t i = 0; i < output.numel(); ++i) std::printf("%.9g\n", output.const_data_ptr<float>()[i]);
  }
  return 0;
}
