// Changes every number of a program, one at a time, and sees what the engine makes of it.
//
//   sweep_program FILE                what there is: fields, patches; a JSON object
//   sweep_program FILE --list         the patches: number, offset, width, value in hexadecimal, path, old,
//   new sweep_program FILE --write=FOLDER the patched files themselves, each by its content's name
//   sweep_program FILE --run          tries them: a JSON object a line for what was found, the sums at last
//
// Options: --first=N --count=N (a part of the patches), --every=N (each N-th of them), --cpu_seconds=N (of
// one patch).
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>

#include "fields.h"
#include "runner/report/json.h"
#include "trial.h"

namespace slipway::fuzz {
namespace {

constexpr std::size_t kEnds = 8;      // of a list of numbers, so many at either end
constexpr std::size_t kSiblings = 2;  // on either side

struct Arguments {
  std::string file;
  std::map<std::string, std::string> options;

  bool has(const char* name) const { return options.count(name) != 0; }
  std::string text(const char* name) const {
    const auto found = options.find(name);
    return found == options.end() ? std::string() : found->second;
  }
  std::size_t number(const char* name, std::size_t otherwise) const {
    const auto found = options.find(name);
    return found == options.end() ? otherwise : std::strtoull(found->second.c_str(), nullptr, 10);
  }
};

Arguments parse(int argc, char** argv) {
  Arguments given;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word.compare(0, 2, "--") != 0) {
      given.file = word;
      continue;
    }
    const std::size_t equals = word.find('=');
    const std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
    given.options[word.substr(2, equals == std::string::npos ? equals : equals - 2)] = value;
  }
  return given;
}

std::string hexadecimal(std::uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%" PRIx64, value);
  return text;
}

void print_finding(const Field& field, const Patch& patch, std::size_t number, std::uint64_t old,
                   const Trial& trial) {
  JsonWriter json;
  json.begin_object().member("patch", number).member("path", field.path).member("offset", field.offset);
  json.member("width", width_of(field.type)).member("value", hexadecimal(patch.value));
  json.member("was", shown(field, old)).member("now", shown(field, patch.value));
  json.member("outcome", name_of(trial.outcome)).member("report", trial.report).end_object();
  std::printf("%s\n", json.text().c_str());
  std::fflush(stdout);
}

// The numbers of the patches that the options choose.
std::vector<std::size_t> choose(std::size_t patches, const Arguments& given) {
  const std::size_t every = std::max<std::size_t>(given.number("every", 1), 1);
  const std::size_t first = given.number("first", 0);
  const std::size_t count = given.number("count", patches);
  std::vector<std::size_t> chosen;
  for (std::size_t i = first; i < patches && i - first < count; i += every) {
    chosen.push_back(i);
  }
  return chosen;
}

int run(const std::vector<std::uint8_t>& file, const std::vector<Field>& fields,
        const std::vector<Patch>& patches, const Arguments& given) {
  const std::vector<std::size_t> chosen = choose(patches.size(), given);
  std::map<std::string, std::size_t> sums;
  const bool done = try_all(
      file, chosen.size(),
      [&](std::size_t i, std::uint8_t* data) {
        const Patch& patch = patches[chosen[i]];
        store(data, fields[patch.field], patch.value);
        return PatchedRange{fields[patch.field].offset, width_of(fields[patch.field].type)};
      },
      given.number("cpu_seconds", 10),
      [&](std::size_t i, const Trial& trial) {
        ++sums[trial.outcome == Outcome::kRefused ? "refused-" + std::to_string(trial.code)
                                                  : name_of(trial.outcome)];
        if (is_finding(trial.outcome)) {
          const Patch& patch = patches[chosen[i]];
          print_finding(fields[patch.field], patch, chosen[i], stored(file.data(), fields[patch.field]),
                        trial);
        }
      });
  JsonWriter json;
  json.begin_object().member("fields", fields.size()).member("patches", patches.size());
  json.member("tried", chosen.size()).key("sums").begin_object();
  for (const auto& [name, number] : sums) {
    json.member(name, number);
  }
  std::printf("%s\n", json.end_object().end_object().text().c_str());
  return done ? 0 : 1;
}

// Leaves a block of memory on purpose: whether that ends the process tells whether a sweep can see it.
int commit(const std::string& fault) {
  constexpr std::size_t kSize = 100;
  keep_last_words();
  auto* memory = static_cast<volatile char*>(std::malloc(kSize));
  if (memory == nullptr) {
    return 9;
  }
  if (fault == "write-behind") {
    memory[kSize] = 1;
  } else if (fault == "write-before") {
    memory[-1] = 1;
  } else if (fault == "read-far") {
    memory[0] = memory[kSize + 64];
  } else {
    return 2;
  }
  std::free(const_cast<char*>(memory));
  return 0;
}

int main_of(int argc, char** argv) {
  const Arguments given = parse(argc, argv);
  if (given.has("fault")) {
    return commit(given.text("fault"));
  }
  std::ifstream stream(given.file, std::ios::binary);
  const std::vector<char> read{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  const std::vector<std::uint8_t> file(read.begin(), read.end());
  if (!well_formed(file.data(), file.size())) {
    std::fprintf(stderr, "%s is no whole program\n", given.file.c_str());
    return 3;
  }
  const std::vector<Field> fields = find_fields(file.data(), file.size(), kEnds);
  const std::vector<Patch> patches = plan_patches(file.data(), fields, kSiblings);
  if (given.has("run")) {
    return run(file, fields, patches, given);
  }
  if (given.has("list")) {
    for (std::size_t i = 0; i < patches.size(); ++i) {
      const Field& field = fields[patches[i].field];
      std::printf("%zu\t%zu\t%zu\t%s\t%s\t%s\t%s\n", i, field.offset, width_of(field.type),
                  hexadecimal(patches[i].value).c_str(), field.path.c_str(),
                  shown(field, stored(file.data(), field)).c_str(), shown(field, patches[i].value).c_str());
    }
    return 0;
  }
  std::printf("{\"fields\":%zu,\"patches\":%zu}\n", fields.size(), patches.size());
  return 0;
}

}  // namespace
}  // namespace slipway::fuzz

int main(int argc, char** argv) {
  return slipway::fuzz::main_of(argc, argv);
}
