#include <onnxruntime_cxx_api.h>

#include <algorithm>
#include <cstdio>

int main() {
  const Ort::Env env(ORT_LOGGING_LEVEL_WARNING, "test_package");
  std::printf("onnxruntime %s\n", Ort::GetVersionString().c_str());
  const auto providers = Ort::GetAvailableProviders();
  for (const auto& name : providers) {
    std::printf("provider %s\n", name.c_str());
  }
  Ort::SessionOptions options;
  options.AppendExecutionProvider("XNNPACK", {{"intra_op_num_threads", "2"}});
  return std::count(providers.begin(), providers.end(), "XnnpackExecutionProvider") == 1 ? 0 : 1;
}
