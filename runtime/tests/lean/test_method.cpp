// Which calls may have their result in memory that they read: what the kernels' tables say (Sharing), what
// the check of calls makes of it, and whether the kernels keep it.
#include "check.h"

#include "lean/kernels/kernel.h"
#include "lean/method/calls.h"
#include "lean/method/delegate.h"
#include "lean/method/recorder.h"
#include "lean/xnnpack/xnn_delegate.h"
#include "views.h"

using namespace slipway;
using namespace slipway::lean;

namespace {

constexpr std::size_t kCallRoom = 64;  // bytes of each tensor's own memory

TensorView matrix_at(std::uint8_t* data, DType dtype = DType::kFloat32) {
  return view_at(dtype, {2, 3}, data);
}

// A call of a kernel all of whose arguments are matrices, each in memory of its own.
class MatrixCall {
 public:
  explicit MatrixCall(const std::string& name)
      : entry_(*find_kernel(name)), memory_((entry_.arguments + 2U) * kCallRoom) {
    for (std::size_t i = 0; i < entry_.arguments; ++i) {
      values_.emplace_back(matrix_at(place(i)));
      arguments_.push_back(static_cast<std::int32_t>(i));
    }
  }

  std::uint8_t* place(std::size_t i) { return memory_.data() + i * kCallRoom; }
  std::size_t result() const { return entry_.arguments - 1U; }
  TensorView& tensor(std::size_t i) { return std::get<TensorView>(values_[i]); }
  std::vector<std::int32_t>& arguments() { return arguments_; }
  std::vector<EValue>& values() { return values_; }
  void result_again() { arguments_.push_back(arguments_.back()); }

  std::string fault() const {
    std::size_t outputs = 0;
    return CallCheck(values_).kernel(entry_, arguments_.data(), arguments_.size(), 0, &outputs).message();
  }
  bool sound() const { return fault().empty(); }

 private:
  const KernelEntry& entry_;
  std::vector<std::uint8_t> memory_;
  std::vector<EValue> values_;
  std::vector<std::int32_t> arguments_;
};

}  // namespace

TEST(calls_have_their_results_where_the_kernels_rows_allow) {
  for (const std::string& name : lean::kernel_names()) {
    const Sharing sharing = find_kernel(name)->sharing;
    const bool in_place = sharing == Sharing::kSelf || sharing == Sharing::kSelfEach;
    if (find_kernel(name)->arguments < 2 || in_place) {
      continue;
    }
    MatrixCall apart(name);
    CHECK_EQUAL(name + apart.fault(), name);
    apart.result_again();
    CHECK_EQUAL(name + apart.fault(), name);
    for (std::size_t i = 0; i < apart.result(); ++i) {
      const bool may =
          sharing == Sharing::kEach || (i == 0 && (sharing == Sharing::kFirst || sharing == Sharing::kView));
      MatrixCall exact(name);
      exact.tensor(exact.result()) = exact.tensor(i);
      CHECK_EQUAL(name + (exact.sound() ? " may" : " may not"), name + (may ? " may" : " may not"));
      MatrixCall itself(name);
      itself.arguments().back() = static_cast<std::int32_t>(i);
      itself.result_again();
      CHECK_EQUAL(name + (itself.sound() ? " may" : " may not"), name + (may ? " may" : " may not"));
      MatrixCall partly(name);
      partly.tensor(partly.result()).data = partly.place(i) + 4;
      CHECK_CONTAINS(partly.fault(), "in the memory of value " + std::to_string(i));
      // At the same address, in another order: a view writes nothing there.
      MatrixCall turned(name);
      turned.tensor(turned.result()) = turned.tensor(i);
      turned.tensor(turned.result()).order = {1, 0};
      CHECK_EQUAL(turned.sound(), i == 0 && sharing == Sharing::kView);
    }
  }
}

TEST(calls_in_place_have_their_first_argument_as_result) {
  for (const char* name : {"aten::copy_", "aten::index_put_", "executorch_prim::et_copy_index.tensor"}) {
    MatrixCall call(name);
    CHECK_EQUAL(call.fault(), "");
    call.arguments().push_back(0);
    CHECK_EQUAL(call.fault(), "");
    // Another value of the same elements, as a view that the exporter left out.
    call.values().emplace_back(call.tensor(0));
    call.arguments().back() = static_cast<std::int32_t>(call.values().size() - 1);
    CHECK_EQUAL(call.fault(), "");
    call.arguments().back() = 1;
    CHECK_CONTAINS(call.fault(), "not its result");
    MatrixCall partly(name);
    partly.tensor(1).data = partly.place(0) + 4;
    CHECK_CONTAINS(partly.fault(), "value 0, in the memory of value 1");
  }
  // A buffer is copied to itself by way of a view; where it is written, it may not be read as well.
  MatrixCall copy("aten::copy_");
  copy.tensor(1) = copy.tensor(0);
  CHECK_EQUAL(copy.fault(), "");
  MatrixCall put("aten::index_put_");
  put.tensor(2) = put.tensor(0);
  CHECK_CONTAINS(put.fault(), "value 0, in the memory of value 2");
}

// A cache is written while the other arguments are read.
TEST(calls_that_write_a_cache_have_it_apart) {
  for (const std::string& name : lean::kernel_names()) {
    const KernelEntry& entry = *find_kernel(name);
    const std::vector<std::size_t> caches = entry.sharing == Sharing::kCache ? std::vector<std::size_t>{1}
                                            : entry.sharing == Sharing::kCaches
                                                ? std::vector<std::size_t>{3, 4}
                                                : std::vector<std::size_t>();
    for (const std::size_t cache : caches) {
      for (std::size_t i = 0; i < entry.arguments; ++i) {
        if (i != cache) {
          MatrixCall call(name);
          CHECK_EQUAL(call.fault(), "");
          call.tensor(cache).data = call.place(i) + 4;
          CHECK_CONTAINS(call.fault(), "in the memory of value");
        }
      }
    }
  }
  CHECK(find_kernel("llama::update_cache.out")->sharing == Sharing::kCache);
}

TEST(calls_with_several_results_have_them_apart) {
  MatrixCall call("aten::max.dim_max");
  call.values().emplace_back(TensorList{{{3, 4}}});
  call.arguments().push_back(5);
  CHECK_EQUAL(call.fault(), "");
  call.tensor(3).data = call.place(4);
  CHECK_CONTAINS(call.fault(), "in the memory of value");
  call.tensor(3).data = call.place(0);
  CHECK_CONTAINS(call.fault(), "value 3, in the memory of value 0");
  // A gradient that is not wanted is None.
  MatrixCall backward("aten::convolution_backward.out");
  const std::size_t last = backward.result();
  backward.values()[last - 1] = EValue();
  const auto number = static_cast<std::int32_t>(last);
  backward.values().emplace_back(TensorList{{{number - 2, number}}});
  backward.arguments().push_back(number + 1);
  CHECK_EQUAL(backward.fault(), "");
  backward.tensor(last) = backward.tensor(1);
  CHECK_CONTAINS(backward.fault(), "in the memory of value 1");
}

namespace {

// What an argument may be; a kernel takes some of them.
constexpr std::int32_t kCallKinds = 9;
constexpr std::int32_t kCallOutput = kCallKinds;

// Their values: four matrices, a column, a number, a flag, None, a list of a tensor; and the output's.
struct TypedCall {
  std::vector<std::uint8_t> memory = std::vector<std::uint8_t>(6 * kCallRoom);
  std::vector<EValue> values;

  TypedCall() {
    const auto at = [this](std::size_t i) { return memory.data() + i * kCallRoom; };
    for (std::size_t i = 0; i < 6; ++i) {
      const float number = 0.125F * static_cast<float>(i + 1);
      const float other = 0.75F - 0.1F * static_cast<float>(i);
      const auto flag = static_cast<std::uint8_t>(i % 2);
      const auto index = static_cast<std::int64_t>(i % 2);
      std::memcpy(at(0) + i * sizeof(number), &number, sizeof(number));
      std::memcpy(at(1) + i * sizeof(other), &other, sizeof(other));
      at(2)[i] = flag;
      std::memcpy(at(3) + i * sizeof(index), &index, sizeof(index));
    }
    values = {matrix_at(at(0)),
              matrix_at(at(1)),
              matrix_at(at(2), DType::kBool),
              matrix_at(at(3), DType::kInt64),
              view_at(DType::kFloat32, {2}, at(4)),
              std::int64_t{1},
              false,
              EValue(),
              TensorList{{{3}}},
              matrix_at(at(5))};
  }

  // What the kernel leaves in the output; nothing if it does not take such arguments.
  std::vector<std::uint8_t> run(const KernelEntry& entry, const std::vector<std::int32_t>& indices) {
    Scratch scratch;
    Arguments arguments(&values, indices.data(), indices.size(), &scratch);
    if (!entry.function(arguments).ok() || !arguments.fault().ok()) {
      return {};
    }
    const auto* out = std::get_if<TensorView>(&values[static_cast<std::size_t>(indices.back())]);
    return {out->data, out->data + out->bytes()};
  }
};

// Arguments that a kernel takes, its output last; none when there are too many ways to find them.
std::vector<std::int32_t> arguments_of(const KernelEntry& entry) {
  if (entry.name == std::string("quantized_decomposed::add.out")) {
    return {0, 5, 5, 5, 5, 1, 5, 5, 5, 5, 5, 5, 5, 5, kCallOutput};
  }
  // The first may be the result where the others lie apart.
  const std::int32_t least = entry.sharing == Sharing::kFirst ? 1 : 0;
  const std::size_t count = entry.arguments;
  std::vector<std::int32_t> found(count, least);
  found.front() = 0;
  found.back() = kCallOutput;
  for (;;) {
    if (!TypedCall().run(entry, found).empty()) {
      return found;
    }
    std::size_t i = count - 1;
    while (i > 0 && ++found[i - 1] == kCallKinds) {
      found[--i] = least;
    }
    if (i == 0) {
      return {};
    }
  }
}

}  // namespace

// The same elements come out, wherever the row lets the result lie.
TEST(calls_with_their_result_in_an_input_give_what_they_give_apart) {
  std::size_t seen = 0;
  for (const std::string& name : lean::kernel_names()) {
    const KernelEntry& entry = *find_kernel(name);
    if (entry.sharing != Sharing::kEach && entry.sharing != Sharing::kFirst) {
      continue;
    }
    const std::vector<std::int32_t> taken = arguments_of(entry);
    CHECK_EQUAL(name + (taken.empty() ? " takes nothing" : ""), name);
    const std::vector<std::uint8_t> wanted = TypedCall().run(entry, taken);
    for (std::size_t i = 0; i + 1 < taken.size(); ++i) {
      if (taken[i] > 1 || (i > 0 && entry.sharing == Sharing::kFirst)) {
        continue;  // not of the output's type
      }
      TypedCall call;
      call.values[kCallOutput] = call.values[static_cast<std::size_t>(taken[i])];
      CHECK_EQUAL(name + (call.run(entry, taken) == wanted ? "" : " differs"), name);
      ++seen;
    }
  }
  CHECK(seen > 100);
}

// Details of what --etdump and --dump_intermediate have; tests/integration/test_engine_profiles.py reads
// whole ones with upstream's Inspector.

TEST(a_value_of_a_type_that_the_inspector_cannot_read_is_left_out) {
  Recorder recorder(true);
  recorder.begin(kExecuteBlock);
  Tensor tensor;
  tensor.dtype = DType::kUnknown;
  tensor.shape = {1};
  tensor.bytes = {1};
  recorder.add_value("aten::add.out", 0, -1, tensor);
  CHECK(recorder.blocks().back().values.empty());
  CHECK(recorder.values().empty());
}
