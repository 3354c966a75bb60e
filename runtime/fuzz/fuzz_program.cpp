// libFuzzer's entry: any bytes as a whole .pte file.
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "exercise.h"

namespace {

void on_abort(const char* message) {
  std::fprintf(stderr, "the engine gave up: %s\n", message);
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace slipway;
  static MemoryFile file;
  // One engine for all: what a program leaves behind in it must not harm the next.
  static const std::unique_ptr<Engine> engine = make_engine(on_abort);
  if (file.write(data, size)) {
    const Status status = exercise(*engine, file.path());
    if (!status.ok() && status.message().empty()) {
      std::abort();  // a failure without words
    }
  }
  return 0;
}
