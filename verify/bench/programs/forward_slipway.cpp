// forward_slipway model.pte input.bin output.bin threads blocks block rows columns
#include "clock.h"
#include "slipway/slipway.hpp"

int main(int argc, char** argv) {
  if (argc != 9) {
    fail("usage: model.pte input.bin output.bin threads blocks block rows columns");
  }
  std::size_t bytes = 0;
  std::vector<std::int64_t> input = read_elements(argv[2], &bytes);
  auto* const data = reinterpret_cast<float*>(input.data());
  const std::vector<std::int64_t> shape = {std::atoll(argv[7]), std::atoll(argv[8])};

  auto pool = slipway::Pool::create(static_cast<std::uint32_t>(std::atoi(argv[4])));
  if (!pool.ok()) {
    fail(pool.error().message());
  }
  slipway::LoadOptions options;
  options.pool = &*pool;
  auto program = slipway::Program::load(argv[1], options);
  if (!program.ok()) {
    fail(program.error().message());
  }
  slipway_method* method = nullptr;
  if (slipway_program_find_method(program->c_program(), "forward", &method) != nullptr) {
    fail("there is no method forward");
  }
  const slipway::Tensor tensor = slipway::from_blob(data, shape, input.size() * sizeof(std::int64_t));
  slipway_tensor output = {};

  measure({{"c",
            [&] {
              return slipway_method_forward(method, &tensor.c_tensor(), 1) == nullptr &&
                     slipway_method_output(method, 0, &output) == nullptr;
            }},
           {"cpp",
            [&] {
              auto outputs = program->forward({tensor});
              if (outputs.ok()) {
                output = outputs->at(0).c_tensor();
              }
              return outputs.ok();
            }},
           {"execute", [&] { return slipway_method_execute(method) == nullptr; }}},
          std::atoi(argv[5]), std::atoi(argv[6]));
  std::ofstream(argv[3], std::ios::binary)
      .write(static_cast<const char*>(output.data),
             static_cast<std::streamsize>(slipway::Tensor(output).nbytes()));
  return 0;
}
