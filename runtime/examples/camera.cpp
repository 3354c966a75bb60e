// A loop as of a camera: camera model.pte frame.bin output.bin [frames]. One thread fills a ring of frames,
// the other one runs the model on each where it lies. The first frame comes from the file, every later one is
// dimmer.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <thread>
#include <vector>

#include "slipway/slipway.hpp"

namespace {

constexpr std::size_t kFrames = 4;

// Frames that are filled, then used, in turn.
struct Ring {
  std::vector<std::vector<float>> frames;
  std::mutex mutex;
  std::condition_variable changed;
  std::size_t filled = 0;  // frames so far
  std::size_t used = 0;
};

void fill(Ring* ring, const std::vector<float>& first, std::size_t count) {
  for (std::size_t number = 0; number < count; ++number) {
    std::unique_lock<std::mutex> lock(ring->mutex);
    ring->changed.wait(lock, [&] { return ring->filled - ring->used < kFrames; });
    lock.unlock();
    const float light = 1.0F / static_cast<float>(number + 1);
    std::vector<float>& frame = ring->frames[number % kFrames];
    std::transform(first.begin(), first.end(), frame.begin(), [light](float pixel) { return pixel * light; });
    lock.lock();
    ++ring->filled;
    ring->changed.notify_all();
  }
}

int fail(const slipway::Error& error) {
  std::fprintf(stderr, "%s\n%s\n", error.message().c_str(), error.fix().c_str());
  return error.code();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "camera model.pte frame.bin output.bin [frames]\n");
    return 2;
  }
  const std::size_t count = argc > 4 ? std::strtoul(argv[4], nullptr, 10) : 8;
  auto program = slipway::Program::load(argv[1]);
  if (!program.ok()) {
    return fail(program.error());
  }
  auto forward = program->method("forward");
  if (!forward.ok()) {
    return fail(forward.error());
  }
  const auto spec = forward->input_spec(0);
  const std::vector<std::int64_t> sizes(spec->sizes, spec->sizes + spec->rank);
  const std::size_t pixels = slipway::from_blob(static_cast<float*>(nullptr), sizes).numel();
  std::vector<float> first(pixels);
  std::ifstream(argv[2], std::ios::binary)
      .read(reinterpret_cast<char*>(first.data()), static_cast<std::streamsize>(pixels * sizeof(float)));
  // With bytes behind each frame that kernels may read: so no frame is ever copied.
  Ring ring;
  ring.frames.assign(kFrames, std::vector<float>(pixels + SLIPWAY_READ_BEHIND / sizeof(float)));
  std::ofstream out(argv[3], std::ios::binary);
  std::size_t copied = 0;
  const auto start = std::chrono::steady_clock::now();
  std::thread source(fill, &ring, std::cref(first), count);
  int code = 0;
  for (std::size_t number = 0; number < count; ++number) {
    std::unique_lock<std::mutex> lock(ring.mutex);
    ring.changed.wait(lock, [&] { return ring.filled > ring.used; });
    lock.unlock();
    std::vector<float>& frame = ring.frames[number % kFrames];
    const auto input = slipway::from_blob(frame.data(), sizes, frame.size() * sizeof(float));
    const auto outputs = forward->forward({input});
    if (outputs.ok()) {
      copied += forward->input_copied(0) ? 1U : 0U;
      out.write(static_cast<const char*>(outputs->at(0).data()),
                static_cast<std::streamsize>(outputs->at(0).nbytes()));
    } else {
      code = fail(outputs.error());
    }
    lock.lock();
    ++ring.used;
    ring.changed.notify_all();
  }
  source.join();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::printf("%zu frames, %zu copied, %.1f frames/s\n", count, copied,
              static_cast<double>(count) / seconds.count());
  return code;
}
