#include <cstdio>
#include <cstring>

#include <executorch/runtime/backend/interface.h>
#include <executorch/runtime/kernel/operator_registry.h>
#include <executorch/runtime/platform/runtime.h>

int main() {
  executorch::runtime::runtime_init();
  bool found = false;
  for (size_t i = 0; i < executorch::runtime::get_num_registered_backends(); ++i) {
    auto name = executorch::runtime::get_backend_name(i);
    if (!name.ok()) continue;
    std::printf("backend %s\n", *name);
    found = found || std::strcmp(*name, "XnnpackBackend") == 0;
  }
  const size_t operators = executorch::runtime::get_registered_kernels().size();
  std::printf("operators %zu\n", operators);
  return found && operators > 100 ? 0 : 1;
}
