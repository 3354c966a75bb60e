// A loop as of a camera: camera model.pte frame.bin output.bin [frames]. A driver fills the frames of a ring
// in turn; the model runs on each where it lies. The file has the first frame, every later one is dimmer.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <vector>

#include "slipway/slipway.hpp"

template <typename Outcome>
static Outcome must(Outcome outcome) {
  if (!outcome.ok()) {
    std::fprintf(stderr, "%s\n%s\n", outcome.error().message().c_str(), outcome.error().fix().c_str());
    std::exit(outcome.error().code());
  }
  return outcome;
}

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "camera model.pte frame.bin output.bin [frames]\n");
    return 2;
  }
  const std::size_t count = argc > 4 ? std::strtoul(argv[4], nullptr, 10) : 8;
  auto program = must(slipway::Program::load(argv[1]));
  auto forward = must(program->method("forward"));
  const auto spec = must(forward->input_spec(0));
  const std::vector<std::int64_t> sizes(spec->sizes, spec->sizes + spec->rank);
  const std::size_t pixels = slipway::from_blob(static_cast<float*>(nullptr), sizes).numel();
  std::vector<float> first(pixels);
  std::ifstream(argv[2], std::ios::binary)
      .read(reinterpret_cast<char*>(first.data()), static_cast<std::streamsize>(pixels * sizeof(float)));
  // With bytes behind each frame that kernels may read: so no frame is ever copied.
  std::vector<std::vector<float>> ring(4, std::vector<float>(pixels + SLIPWAY_READ_BEHIND / sizeof(float)));
  std::ofstream out(argv[3], std::ios::binary);
  std::size_t copied = 0;
  const auto start = std::chrono::steady_clock::now();
  for (std::size_t number = 0; number < count; ++number) {
    std::vector<float>& frame = ring[number % ring.size()];
    const float light = 1.0F / static_cast<float>(number + 1);
    std::transform(first.begin(), first.end(), frame.begin(), [light](float pixel) { return pixel * light; });
    const auto input = slipway::from_blob(frame.data(), sizes, frame.size() * sizeof(float));
    const auto outputs = must(forward->forward({input}));
    copied += forward->input_copied(0) ? 1U : 0U;
    out.write(static_cast<const char*>(outputs->at(0).data()),
              static_cast<std::streamsize>(outputs->at(0).nbytes()));
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::printf("%zu frames, %zu copied, %.1f frames/s\n", count, copied,
              static_cast<double>(count) / seconds.count());
  return 0;
}
