// forward_executorch model.pte input.bin output.bin threads blocks block rows columns: upstream's Module, as
// its documentation uses it.
#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>

#include "clock.h"

// The SDK exports these functions but ships no header for them; no object is made here.
namespace executorch::extension::threadpool {
class ThreadPool {
 public:
  std::size_t get_thread_count() const;
  bool _unsafe_reset_threadpool(std::uint32_t num_threads);
};
ThreadPool* get_threadpool();
}  // namespace executorch::extension::threadpool

int main(int argc, char** argv) {
  using executorch::extension::from_blob;
  using executorch::extension::Module;
  if (argc != 9) {
    fail("usage: model.pte input.bin output.bin threads blocks block rows columns");
  }
  std::size_t bytes = 0;
  std::vector<std::int64_t> input = read_elements(argv[2], &bytes);
  const auto threads = static_cast<std::uint32_t>(std::atoi(argv[4]));
  auto* const pool = executorch::extension::threadpool::get_threadpool();
  if (pool == nullptr || (pool->get_thread_count() != threads && !pool->_unsafe_reset_threadpool(threads))) {
    fail("no thread pool");
  }
  Module module(argv[1], Module::LoadMode::Mmap);
  if (module.load_forward() != executorch::runtime::Error::Ok) {
    fail("the program cannot be loaded");
  }
  auto method = module.method("forward");
  if (!method.ok()) {
    fail("there is no method forward");
  }
  using Sizes = std::vector<executorch::aten::SizesType>;
  auto tensor = from_blob(input.data(), Sizes{std::atoi(argv[7]), std::atoi(argv[8])});
  executorch::aten::Tensor output = *tensor;
  measure({{"module",
            [&] {
              auto outputs = module.forward(tensor);
              if (outputs.ok()) {
                output = outputs->at(0).toTensor();
              }
              return outputs.ok();
            }},
           {"module_execute", [&] { return (*method)->execute() == executorch::runtime::Error::Ok; }}},
          std::atoi(argv[5]), std::atoi(argv[6]));
  std::ofstream(argv[3], std::ios::binary)
      .write(static_cast<const char*>(output.const_data_ptr()),
             static_cast<std::streamsize>(output.nbytes()));
  return 0;
}
