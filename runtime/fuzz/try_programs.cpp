// try_programs FILE...: puts each program through everything; whatever is wrong with it must end in a status.
// try_programs --truncate STEP FILE...: each file cut off at every STEP-th byte, which must be seen and told.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "exercise.h"

namespace {

using namespace slipway;

void on_abort(const char* message) {
  std::fprintf(stderr, "the engine gave up: %s\n", message);
  std::_Exit(1);
}

std::vector<std::uint8_t> content(const char* path) {
  std::ifstream stream(path, std::ios::binary);
  return std::vector<std::uint8_t>(std::istreambuf_iterator<char>(stream), {});
}

// The number of lengths whose fault was not told as it should be.
unsigned truncate(Engine& engine, const char* path, std::size_t step) {
  const std::vector<std::uint8_t> whole = content(path);
  MemoryFile file;
  unsigned wrong = 0;
  for (std::size_t size = 0; size < whole.size(); size += step) {
    const Status status = file.write(whole.data(), size) ? exercise(engine, file.path()) : Status();
    if (status.code() != Code::kFile || status.message().empty() || status.fix().empty()) {
      std::fprintf(stderr, "%s cut to %zu bytes: %s\n", path, size, status.message().c_str());
      ++wrong;
    }
  }
  std::printf("%s: %zu lengths\n", path, (whole.size() + step - 1) / step);
  return wrong;
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 1 << 16);  // what was done is told even if the next file ends all
  const std::unique_ptr<Engine> engine = make_engine(on_abort);
  const std::vector<std::string> words(argv + 1, argv + argc);
  const bool cut = words.size() > 2 && words[0] == "--truncate";
  const std::size_t step = cut ? std::strtoul(words[1].c_str(), nullptr, 10) : 0;
  unsigned wrong = 0;
  for (std::size_t i = cut ? 2 : 0; i < words.size(); ++i) {
    if (step != 0) {
      wrong += truncate(*engine, words[i].c_str(), step);
      continue;
    }
    const Status status = exercise(*engine, words[i]);
    std::printf("%s: %s\n", words[i].c_str(), status.ok() ? "runs" : status.message().c_str());
    wrong += !status.ok() && status.message().empty() ? 1 : 0;
  }
  return wrong == 0 && !words.empty() ? 0 : 1;
}
