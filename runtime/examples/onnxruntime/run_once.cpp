// Runs a model once: run_once model.onnx input.bin output.bin threads. The files hold a tensor's floats.
#include <fcntl.h>
#include <onnxruntime_cxx_api.h>
#include <onnxruntime_session_options_config_keys.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <vector>

// Debian's library registers its operators twice with the first session, and says so for each of them.
struct Quiet {
  Quiet() { dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), STDERR_FILENO); }
  ~Quiet() { dup2(errors, STDERR_FILENO); }
  const int errors = dup(STDERR_FILENO);
};

int main(int argc, char** argv) try {
  if (argc != 5) {
    std::fprintf(stderr, "usage: run_once model.onnx input.bin output.bin threads\n");
    return 2;
  }
  const Ort::Env env(ORT_LOGGING_LEVEL_ERROR, "run_once");
  Ort::SessionOptions options;
  options.AppendExecutionProvider("XNNPACK", {{"intra_op_num_threads", argv[4]}});
  // The provider has threads of its own: those of the session must not take processors from them.
  options.SetIntraOpNumThreads(1);
  options.AddConfigEntry(kOrtSessionOptionsConfigAllowIntraOpSpinning, "0");
  Ort::Session session = (Quiet(), Ort::Session(env, argv[1], options));

  Ort::AllocatorWithDefaultOptions allocator;
  const auto in = session.GetInputNameAllocated(0, allocator),
             out = session.GetOutputNameAllocated(0, allocator);
  const char *const inputs[] = {in.get()}, *const outputs[] = {out.get()};
  const Ort::TypeInfo type = session.GetInputTypeInfo(0);
  const auto shape = type.GetTensorTypeAndShapeInfo().GetShape();
  std::ifstream file(argv[2], std::ios::binary);
  std::vector<char> data{std::istreambuf_iterator<char>(file), {}};
  const auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
  const auto input = Ort::Value::CreateTensor(memory, data.data(), data.size(), shape.data(), shape.size(),
                                              ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT);
  const auto results = session.Run(Ort::RunOptions(), inputs, &input, 1, outputs, 1);

  const std::size_t count = results[0].GetTensorTypeAndShapeInfo().GetElementCount();
  const auto* values = results[0].GetTensorData<float>();
  std::ofstream(argv[3], std::ios::binary)
      .write(reinterpret_cast<const char*>(values), static_cast<std::streamsize>(count * sizeof(float)));
  for (std::size_t i = 0; i < count; ++i) std::printf("%.9g\n", values[i]);
  return 0;
} catch (const Ort::Exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
