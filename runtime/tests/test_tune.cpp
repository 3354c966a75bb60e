// Files that choose kernels, and what is picked from measurements.
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "check.h"
#include "runner/tune/keyed_text.h"
#include "runner/tune/tune.h"
#include "temporary_folder.h"

using namespace slipway;

namespace {

constexpr char kTitle[] = "slipway kernels 1\n";

std::string reason(const TemporaryFolder& folder, const std::string& text, bool complete = false) {
  const TextOwner owner{"a processor", {folder.write_text("runner", "r"), folder.write_text("program", "p")}};
  const Result<KernelChoices> read = read_choices(folder.write_text("choices", text), owner, complete);
  return read.ok() ? "" : read.status().message();
}

Tensor floats_of(const std::vector<float>& values) {
  Tensor tensor;
  tensor.dtype = DType::kFloat32;
  tensor.shape = {static_cast<std::int64_t>(values.size())};
  tensor.bytes.resize(values.size() * sizeof(float));
  std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
  return tensor;
}

LayerTimes measured(std::uint64_t own, std::uint64_t other) {
  LayerTimes layer;
  layer.layer = "forward/0/1";
  layer.own = "8x32";
  layer.candidates = {{"12x32", 1, false, Samples(9, other)}, {"8x32", 1.1, false, Samples(9, own)}};
  return layer;
}

}  // namespace

TEST(choices_that_people_write_need_no_owner) {
  const TemporaryFolder folder;
  CHECK_EQUAL(reason(folder, std::string(kTitle) + "threads 2\nlayer forward/0/1 xnnpack\n"), "");
  CHECK_CONTAINS(reason(folder, std::string(kTitle) + "layer forward/0/1 xnnpack\n", true), "no checksum");
}

TEST(choices_are_read_strictly) {
  const TemporaryFolder folder;
  const std::string wrong[] = {
      "layer forward/0/1\n",
      "layer forward/0/1 xnnpack more\n",
      "layer forward/0/1 xnn\tpack\n",
      "layer ../../etc/passwd\\ x\n",
      "layer a 12x32 8x32 1 -2\n",
      "layer a 12x32 8x32 1 9999999999999999999\n",
      "layer a 1x1\nlayer a 2x1\n",
      "threads 0\n",
      "threads 2\nthreads 2\n",
      "threads 99999\n",
      "time 1\n",
      "other 1\n",
      "layer a 1x1",
      "processor x\n",
      "file 1 0 0 0 x\n",
      "sum 0\n",
      "layer " + std::string(300, 'a') + " 1x1\n",
      std::string("layer a\0b 1x1\n", 14),
  };
  for (const std::string& text : wrong) {
    CHECK(!reason(folder, kTitle + text).empty());
  }
  CHECK_CONTAINS(reason(folder, "slipway kernels 2\n"), "another kind or version");
  CHECK_CONTAINS(reason(folder, ""), "damaged");
  CHECK_CONTAINS(reason(folder, kTitle + std::string(std::size_t{5} << 20, '\n')), "longer");
}

TEST(choices_that_were_written_are_for_their_owner_alone) {
  const TemporaryFolder folder;
  const TextOwner owner{"a processor", {folder.write_text("runner", "r"), folder.write_text("program", "p")}};
  KernelChoices choices;
  choices.threads = 2;
  choices.own_ns = 120;
  choices.tuned_ns = 100;
  choices.layers = {{"forward/0/1", "12x32", "8x32", 20, 10}, {"forward/0/2", "xnnpack", "", 0, 0}};
  const std::string path = folder.file("choices");
  CHECK(write_choices(path, owner, choices).ok());
  const Result<KernelChoices> read = read_choices(path, owner, true);
  CHECK(read.ok());
  CHECK_EQUAL(read.value().threads, 2U);
  CHECK_EQUAL(read.value().layers.size(), 2U);
  CHECK_EQUAL(read.value().layers[0].choice, "12x32");
  CHECK_EQUAL(read.value().layers[0].tuned_ns, 10U);
  const std::string text = folder.read("choices");
  for (std::size_t i = 0; i < text.size(); i += 3) {
    std::string damaged = text;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    folder.write_text("choices", damaged);
    CHECK(!read_choices(path, owner, true).ok());
  }
  folder.write_text("choices", text);
  TextOwner other = owner;
  other.processor = "another";
  CHECK_CONTAINS(read_choices(path, other, true).status().message(), "another processor");
  folder.write_text("program", "q");
  CHECK_CONTAINS(read_choices(path, owner, true).status().message(), "another program");
  folder.write_text("program", "p");  // the same bytes in a file that was touched
  CHECK(read_choices(path, owner, true).ok());
  folder.write_text("runner", "s");
  CHECK_CONTAINS(read_choices(path, owner, true).status().message(), "another runner");
}

TEST(what_is_faster_in_checks_is_picked) {
  LayerTimes layer = measured(100, 80);
  CHECK_EQUAL(layer.leader().choice, "12x32");
  CHECK(layer.unchecked());
  CHECK_EQUAL(layer.pick().choice, "8x32");  // nothing is certain yet
  layer.checks.assign(11, {100, 90});
  CHECK_EQUAL(layer.pick().choice, "12x32");
  CHECK_EQUAL(layer.times().tuned, 90U);
  for (std::size_t i = 0; i < 3; ++i) {
    layer.checks[i] = {100, 101};
  }
  CHECK_EQUAL(layer.pick().choice, "8x32");
  layer.checks.assign(11, {100, 99});  // faster, and not worth it
  CHECK_EQUAL(layer.pick().choice, "8x32");
}

TEST(what_is_slow_or_wrong_is_measured_no_more) {
  LayerTimes layer = measured(100, 80);
  CHECK(!layer.wants());
  layer.candidates[0].samples.resize(2);
  CHECK(layer.wants(layer.candidates[0]));
  layer.candidates[0].samples = {200, 200};
  CHECK(!layer.wants(layer.candidates[0]));
  layer.candidates[0] = {"12x32", 1, true, {}};
  CHECK(!layer.wants(layer.candidates[0]));
  CHECK_EQUAL(layer.leader().choice, "8x32");
  layer.candidates[0] = {"12x32", 2, false, {}};  // the model says that it takes twice the time
  CHECK(!layer.wants(layer.candidates[0]));
}

TEST(measurements_are_gone_on_with) {
  const TemporaryFolder folder;
  const TextOwner owner{"a processor", {folder.write_text("runner", "r"), folder.write_text("program", "p")}};
  Measurements found;
  found.runs = {{1, {5, 6}}, {2, {3}}};
  found.threads = 2;
  found.layers = {measured(100, 80)};
  found.layers[0].candidates[0].rejected = true;
  found.layers[0].checks = {{7, 8}};
  found.pairs = {{9, 10}};
  const std::string path = folder.file("part");
  CHECK(write_measurements(path, owner, found).ok());
  Measurements again;
  again.layers = {measured(0, 0)};
  again.layers[0].candidates[0].samples.clear();
  again.layers[0].candidates[1].samples.clear();
  CHECK(read_measurements(path, owner, &again));
  CHECK_EQUAL(again.threads, 2U);
  CHECK_EQUAL(again.runs[0].samples.size(), 2U);
  CHECK(again.layers[0].candidates[0].rejected);
  CHECK_EQUAL(again.layers[0].candidates[1].samples.size(), 9U);
  CHECK_EQUAL(again.layers[0].checks[0].tuned, 8U);
  CHECK_EQUAL(again.pairs[0].tuned, 10U);
  Measurements others;  // of layers that it does not know
  CHECK(!read_measurements(path, owner, &others));
  CHECK(others.runs.empty());
}

TEST(outputs_agree_within_the_types_tolerance) {
  const float infinity = std::numeric_limits<float>::infinity();
  CHECK(outputs_agree({floats_of({1, 2, NAN, infinity})}, {floats_of({1, 2, NAN, infinity})}));
  CHECK(outputs_agree({floats_of({100.0005F})}, {floats_of({100})}));
  CHECK(!outputs_agree({floats_of({100.01F})}, {floats_of({100})}));
  CHECK(!outputs_agree({floats_of({NAN})}, {floats_of({1})}));
  CHECK(!outputs_agree({floats_of({1})}, {floats_of({infinity})}));
  CHECK(!outputs_agree({floats_of({1, 2})}, {floats_of({1})}));
  CHECK(!outputs_agree({}, {floats_of({1})}));
}
