// An int8 model that ONNX Runtime first refuses, on x86 processors without VNNI: a second session is made for
// it.
#if defined(__x86_64__)

#include <time.h>

#include "check.h"
#include "model_builder.h"
#include "slipway/engine.h"
#include "temporary_folder.h"

namespace {

// How often ONNX Runtime has asked for the time of day, which it does for a profile's name.
time_t named = 0;

}  // namespace

// In place of the C library's, for the libraries of this program too: two profiles have two names, however
// fast their sessions follow each other.
extern "C" [[gnu::visibility("default")]] struct tm* localtime_r(const time_t* at,
                                                                 struct tm* parts) noexcept {
  const time_t later = *at + named++;
  return ::gmtime_r(&later, parts);
}

namespace {

using namespace slipway;

// Of int8, the type with number 3.
Message bytes(const std::string& name, const std::vector<std::int64_t>& shape, const std::string& data) {
  Message tensor;
  for (const std::int64_t size : shape) {
    tensor.number(1, static_cast<std::uint64_t>(size));
  }
  return tensor.number(2, 3).text(8, name).text(9, data);
}

TEST(engine_reads_the_profile_of_the_session_that_ran) {
  // With weights this large sums of 16 bits could overflow, and only then the first session is refused.
  ModelRecipe recipe;
  recipe.nodes = {
      {"QuantizeLinear", {"x", "one", "zero"}, {"q"}, "first", ""},
      {"QLinearMatMul", {"q", "one", "zero", "m", "one", "zero", "one", "zero"}, {"p"}, "product", ""},
      {"DequantizeLinear", {"p", "one", "zero"}, {"y"}, "last", ""}};
  recipe.constants = {constant("one", {}, 1), bytes("zero", {}, std::string(1, '\0')),
                      bytes("m", {4, 4}, std::string(16, '\x7f'))};
  recipe.inputs = {value("x", {1, 4})};
  recipe.outputs = {value("y", {1, 4})};
  const TemporaryFolder folder;
  const std::string path = folder.write_text("a.onnx", make_model(recipe));
  // Which of two files a folder lists first is chance.
  for (int i = 0; i < 8; ++i) {
    const auto running = make_engine(nullptr);
    CHECK(running->configure({}).ok());
    const time_t before = named;
    CHECK(running->load({path, "", "forward", {}, false}).ok());
    CHECK(named > before);
    CHECK(running->set_inputs({ones(DType::kFloat32, {1, 4}, 4)}).ok() && running->execute().ok());
    CHECK_EQUAL(running->placement().nodes.size(), std::size_t{3});
  }
}

}  // namespace

#endif
