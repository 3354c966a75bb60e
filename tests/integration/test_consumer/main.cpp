// Prints what registered itself before main() began.
#include <cstdio>

#include <executorch/extension/module/module.h>
#include <executorch/runtime/backend/interface.h>
#include <executorch/runtime/kernel/operator_registry.h>
#include <executorch/runtime/platform/runtime.h>

int main(int argc, char** argv) {
  namespace et = executorch::runtime;
  et::runtime_init();
  for (size_t i = 0; i < et::get_num_registered_backends(); ++i) {
    auto name = et::get_backend_name(i);
    std::printf("backend %s\n", name.ok() ? *name : "?");
  }
  std::printf("operators %zu\n", et::get_registered_kernels().size());
  if (argc > 1) {
    executorch::extension::Module module(argv[1]);
    std::printf("load %d\n", static_cast<int>(module.load()));
  }
  return 0;
}
