// libFuzzer's entry, any bytes as a whole .pte file, and its custom mutator: a number of the program or of a
// graph in it is changed, found by the schemas, so that what comes of it is still a program in most cases.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>

#include "exercise.h"
#include "fields.h"

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

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t most,
                                               unsigned int seed);

namespace slipway::fuzz {
namespace {

constexpr std::size_t kEnds = 16;
constexpr unsigned kBytesAlone = 8;  // one in so many mutations is libFuzzer's own, of any bytes

std::uint64_t choose(const std::uint8_t* data, const std::vector<Field>& fields, const Field& field,
                     std::minstd_rand& random) {
  const std::uint64_t now = stored(data, field);
  const std::vector<std::uint64_t> values = values_for(field, now);
  switch (random() % 8) {
    case 0:  // any number
      return (std::uint64_t{random()} << 32 | random()) >> random() % 64;
    case 1:  // a few more or less
      return now + random() % 17 - 8;
    case 2:
    case 3:  // another field's of the same width: indices, sizes, ids
      for (int turn = 0; turn < 8; ++turn) {
        const Field& other = fields[random() % fields.size()];
        if (other.type == field.type && !other.entry) {
          return stored(data, other);
        }
      }
      return now;
    default:
      return values.empty() ? now : values[random() % values.size()];
  }
}

}  // namespace
}  // namespace slipway::fuzz

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t most,
                                               unsigned int seed) {
  using namespace slipway::fuzz;
  std::minstd_rand random(seed);
  if (random() % kBytesAlone == 0 || !well_formed(data, size)) {
    return LLVMFuzzerMutate(data, size, most);
  }
  const std::vector<Field> fields = find_fields(data, size, kEnds);
  std::vector<std::size_t> chosen;
  for (std::size_t turns = 1 + random() % 3; turns > 0; --turns) {
    chosen.push_back(random() % fields.size());
  }
  std::vector<std::uint64_t> values;
  for (const std::size_t i : chosen) {
    values.push_back(choose(data, fields, fields[i], random));
  }
  // All are found before the first is written: what is written may be the way to another.
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    store(data, fields[chosen[i]], values[i]);
  }
  return size;
}
