#include "tail_bench.h"

#include <cstdlib>

#include "base/text.h"
#include "check.h"
#include "program_builder.h"

using namespace slipway;
using namespace slipway::lean;

namespace tails {
namespace {

constexpr unsigned kThreads = 3;

const char* environment_or(const char* name, const char* otherwise) {
  const char* found = std::getenv(name);
  return found == nullptr ? otherwise : found;
}

}  // namespace

TailBench::TailBench() {
  Result<DataStore> opened = DataStore::open(folder.write("model.pte", make_program()), "");
  store = std::make_unique<DataStore>(std::move(opened.value()));
  KernelLimits limits;
  const std::string left_out = environment_or("SLIPWAY_TESTS_WITHOUT", "");
  for (const std::string_view name : pieces(left_out, ",")) {
    if (name == "kleidiai") {
      limits.kleidiai = false;
    } else {
      limits.unused_features.emplace_back(name);
    }
  }
  for (XnnContext* context : {&alone, &together}) {
    context->limit(limits);
    CHECK(context->start().ok());
  }
  CHECK(together.set_threads(kThreads).value() == kThreads);
}

TailBench& tail_bench() {
  static TailBench only;
  return only;
}

TensorView view_of(Type type, const std::vector<std::uint32_t>& dims, std::uint8_t* data) {
  TensorView view;
  switch (type) {
    case Type::xnn_datatype_fp16:
      view.dtype = DType::kFloat16;
      break;
    case Type::xnn_datatype_qint8:
      view.dtype = DType::kInt8;
      break;
    case Type::xnn_datatype_quint8:
      view.dtype = DType::kUInt8;
      break;
    default:
      view.dtype = DType::kFloat32;
      break;
  }
  view.dynamism = Dynamism::kBounded;
  view.rank = static_cast<std::uint8_t>(dims.size());
  for (std::uint8_t i = 0; i < view.rank; ++i) {
    view.sizes[i] = view.bounds[i] = dims[i];
    view.order[i] = i;
  }
  view.data = data;
  view.capacity = view.bytes();
  return view;
}

Amount how_much() {
  const std::string found = environment_or("SLIPWAY_TESTS_TAILS", "1");
  if (found == "all") {
    return {6, 1};
  }
  return {1, std::max<std::size_t>(std::strtoul(found.c_str(), nullptr, 10), 1)};
}

}  // namespace tails
