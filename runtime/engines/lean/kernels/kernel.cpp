#include "lean/kernels/kernel.h"

#include <algorithm>
#include <string>

#include "lean/kernels/elements.h"
#include "lean/kernels/sharing.h"
#include "lean/kernels/tensor_iterator.h"

namespace slipway::lean {
namespace {

// A tensor for kernels that were given none: one element, which can be read and not be written.
TensorView& no_tensor() {
  static TensorView nothing;
  static std::uint64_t zero;
  zero = 0;
  nothing = TensorView();
  nothing.dtype = DType::kFloat32;
  nothing.data = reinterpret_cast<std::uint8_t*>(&zero);
  nothing.capacity = sizeof(zero);
  nothing.constant = true;
  return nothing;
}

constexpr const KernelTable* kTables[] = {
    &kAttentionKernels,     &kBinaryKernels,         &kConvolutionKernels, &kFactoryKernels,
    &kIndexingKernels,      &kLinearAlgebraKernels,  &kMaskedKernels,      &kNormalizationKernels,
    &kPoolingKernels,       &kPrimKernels,           &kQuantizedKernels,   &kReduceKernels,
    &kScatterGatherKernels, &kTransformationKernels, &kUnaryKernels,       &kUpsampleKernels,
    &kViewKernels};

}  // namespace

const KernelEntry* find_kernel(std::string_view name) {
  for (const KernelTable* table : kTables) {
    for (const KernelEntry& entry : *table) {
      if (name == entry.name) {
        return &entry;
      }
    }
  }
  return nullptr;
}

bool has_kernel(std::string_view call) {
  return find_kernel(call.substr(0, call.find(" of "))) != nullptr;
}

std::vector<std::string> kernel_names() {
  std::vector<std::string> names;
  for (const KernelTable* table : kTables) {
    for (const KernelEntry& entry : *table) {
      if (entry.function != nullptr) {
        names.emplace_back(entry.name);
      }
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::uint8_t* Scratch::get(std::size_t bytes) {
  memory_.resize(std::max(memory_.size(), bytes / sizeof(std::max_align_t) + 1));
  return reinterpret_cast<std::uint8_t*>(memory_.data());
}

// SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
std::uint64_t Scratch::random() {
  std::uint64_t bits = ++drawn_ * 0x9E3779B97F4A7C15U;
  bits = (bits ^ (bits >> 30U)) * 0xBF58476D1CE4E5B9U;
  bits = (bits ^ (bits >> 27U)) * 0x94D049BB133111EBU;
  return bits ^ (bits >> 31U);
}

Arguments::Arguments(std::vector<EValue>* values, const std::int32_t* indices, std::size_t count,
                     Scratch* scratch)
    : values_(values), indices_(indices), count_(count), scratch_(scratch) {
  set_threads_of_call(scratch->threads);
}

Arguments::~Arguments() {
  set_threads_of_call(nullptr);
  // By their indices: a kernel may have put a number where a tensor was.
  for (const std::int32_t index : scratch_->taken_) {
    if (auto* view = std::get_if<TensorView>(&(*values_)[static_cast<std::size_t>(index)])) {
      view->taken = 0;
      view->pinned = false;
    }
  }
  scratch_->taken_.clear();
}

// The tensor of value `index` becomes argument i, or one of several in it.
void Arguments::take(std::int32_t index, TensorView* view, std::size_t i) {
  if (view->dynamism == Dynamism::kStatic) {
    return;  // it keeps its sizes anyway
  }
  const auto argument = static_cast<std::uint32_t>(i + 1);
  if (view->taken == 0) {
    view->taken = argument;
    scratch_->taken_.push_back(index);
  }
  view->pinned = view->pinned || view->taken != argument;
}

void Arguments::fail(std::size_t i, const char* expected) {
  if (fault_.ok()) {
    fault_ = Status(Code::kFile, "argument " + std::to_string(i) + " must be " + expected,
                    "export the model again, with the version of ExecuTorch that this runner reads");
  }
}

EValue& Arguments::missing(std::size_t i) {
  static EValue none;
  fail(i, "there: this call has too few");
  none = std::monostate();
  return none;
}

TensorView& Arguments::tensor(std::size_t i) {
  TensorView& found = tensor_without_memory(i);
  if (found.data != nullptr || found.count() == 0) {
    return found;
  }
  fail(i, "a tensor that has memory");
  return no_tensor();
}

TensorView& Arguments::tensor_without_memory(std::size_t i) {
  if (auto* view = std::get_if<TensorView>(&value(i)); view != nullptr && view->dtype != DType::kUnknown) {
    take(indices_[i], view, i);
    return *view;
  }
  fail(i, "a tensor");
  return no_tensor();
}

std::int64_t Arguments::integer(std::size_t i) {
  const EValue& found = value(i);
  if (const auto* number = std::get_if<std::int64_t>(&found)) {
    return *number;
  }
  if (const auto* flag = std::get_if<bool>(&found)) {
    return *flag ? 1 : 0;
  }
  fail(i, "an integer");
  return 0;
}

Number Arguments::number(std::size_t i) {
  const double found = real(i);
  const bool integral = !std::holds_alternative<double>(value(i));
  return {found, integral ? integer(i) : to_int64(found), integral, std::holds_alternative<bool>(value(i))};
}

double Arguments::real(std::size_t i) {
  const EValue& found = value(i);
  if (const auto* number = std::get_if<double>(&found)) {
    return *number;
  }
  if (std::holds_alternative<std::int64_t>(found) || std::holds_alternative<bool>(found)) {
    return static_cast<double>(integer(i));
  }
  fail(i, "a number");
  return 0.0;
}

std::size_t Arguments::dimension(std::size_t i, bool of_lines) {
  const std::int64_t given = integer(i);
  const std::size_t rank = tensor(0).rank;
  const Result<std::size_t> found = of_lines && rank == 0 ? 0 : wrap_dim(given, rank);
  if (fault_.ok() && !found.ok()) {
    fault_ = found.status();
  }
  return found.ok() ? found.value() : 0;
}

std::vector<std::int64_t>& Arguments::integers(std::size_t i) {
  std::vector<std::int64_t>& found = scratch_->lists_.at(lists_++);  // no operator has as many
  found.clear();
  if (const auto* list = std::get_if<IntList>(&value(i))) {
    for (const std::int32_t item : list->items) {
      const auto* number = std::get_if<std::int64_t>(&(*values_)[static_cast<std::size_t>(item)]);
      // Sizes, paddings and the like are 32-bit numbers in programs; kernels multiply them with one another.
      if (number == nullptr || *number < INT32_MIN || *number > INT32_MAX) {
        fail(i, number == nullptr ? "a list of integers" : "a list of sizes");
        found.clear();
        return found;
      }
      found.push_back(*number);
    }
  } else if (!is_none(i)) {
    fail(i, "a list of integers");
  }
  return found;
}

std::vector<TensorView*> Arguments::tensors(std::size_t i) {
  std::vector<TensorView*> found;
  if (const auto* list = std::get_if<TensorList>(&value(i))) {
    for (const std::int32_t item : list->items) {
      EValue* one = item < 0 ? nullptr : &(*values_)[static_cast<std::size_t>(item)];
      TensorView* view = one == nullptr ? nullptr : std::get_if<TensorView>(one);
      if (view != nullptr &&
          ((view->data == nullptr && view->count() != 0) || view->dtype == DType::kUnknown)) {
        fail(i, "a list of tensors that have memory");
        return {};
      }
      if (view != nullptr) {
        take(item, view, i);
      }
      found.push_back(view);
    }
  } else if (!is_none(i)) {
    fail(i, "a list of tensors");
  }
  return found;
}

}  // namespace slipway::lean
