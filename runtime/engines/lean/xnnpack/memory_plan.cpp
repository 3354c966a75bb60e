#include "lean/xnnpack/memory_plan.h"

#include <xnnpack/common.h>
#include <xnnpack/node-type.h>
#include <xnnpack/subgraph.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace slipway::lean {
namespace {

// Of more values, only one order is tried: placing takes a time that grows with their square.
constexpr std::size_t kFewLives = 1024;

struct Interval {
  std::size_t begin;
  std::size_t end;
  std::size_t life;
};

// Places one value after the other, each in the smallest gap that holds it.
Places place_by(const std::vector<std::size_t>& order, const std::vector<Life>& lives) {
  Places places;
  places.offsets.resize(lives.size());
  std::vector<Interval> placed;  // by where they begin
  for (const std::size_t i : order) {
    const Life& life = lives[i];
    if (life.size == 0) {
      continue;
    }
    std::size_t end = 0;  // of what was seen so far and meets this life
    std::size_t best = 0;
    std::size_t smallest = SIZE_MAX;
    for (const Interval& other : placed) {
      if (!life.meets(lives[other.life])) {
        continue;
      }
      if (other.begin > end && other.begin - end >= life.size && other.begin - end < smallest) {
        smallest = other.begin - end;
        best = end;
      }
      end = std::max(end, other.end);
    }
    const std::size_t at = smallest == SIZE_MAX ? end : best;
    const auto after =
        std::upper_bound(placed.begin(), placed.end(), at,
                         [](std::size_t begin, const Interval& one) { return begin < one.begin; });
    placed.insert(after, {at, at + life.size, i});
    places.offsets[i] = at;
    places.size = std::max(places.size, at + life.size);
  }
  return places;
}

constexpr std::size_t kNoStep = SIZE_MAX;
constexpr std::size_t kMostPlanned = SIZE_MAX / 4;

// A line of the caches, where XNNPACK asks for less.
constexpr std::size_t kUnit = std::max<std::size_t>(XNN_ALLOCATION_ALIGNMENT, 64);

// Kernels read behind the last element, where the next value lies; behind the last value there is room.
std::size_t in_units(std::size_t bytes) {
  return (bytes + kUnit - 1) / kUnit * kUnit;
}

bool is_planned(const xnn_value& value) {
  return value.type != xnn_value_type_invalid && value.allocation_type == xnn_allocation_type_workspace;
}

// Rows that are quantized at run time have their scales behind them.
std::size_t scales_size(const xnn_value& value) {
  return value.datatype == xnn_datatype_qdint8
             ? in_units(value.quantization.dynamic_params_size +
                        XNN_EXTRA_QUANTIZATION_PARAMS * sizeof(xnn_quantization_params))
             : 0;
}

// Whether an operator computes each element of its result from the one element that lies in the same place,
// or reads a row before it writes it. XNNPACK's own planner trusts the same operators.
bool works_in_place(xnn_node_type type) {
  switch (type) {
    case xnn_node_type_unary_elementwise:
    case xnn_node_type_binary_elementwise:
    case xnn_node_type_copy:
    case xnn_node_type_softmax:
    case xnn_node_type_static_reshape:
      return true;
    default:
      return false;
  }
}

// The lives of a graph's values, and which of them lie in the same place.
class Lives {
 public:
  explicit Lives(const xnn_runtime& runtime) : runtime_(runtime), lives_(runtime.num_values) {
    for (Life& life : lives_) {
      life.first = kNoStep;
    }
    for (std::size_t step = 0; step < runtime.num_ops; ++step) {
      const xnn_operator_data& data = runtime.opdata[step];
      for (std::uint32_t i = 0; i < data.num_inputs; ++i) {
        touch(data.inputs[i], step);
      }
      for (std::uint32_t i = 0; i < data.num_outputs; ++i) {
        touch(data.outputs[i], step);
      }
    }
    owners_.resize(lives_.size());
    last_uses_.resize(lives_.size());
    for (std::size_t i = 0; i < lives_.size(); ++i) {
      owners_[i] = i;
      last_uses_[i] = lives_[i].last;
      const xnn_value& value = runtime.values[i];
      if (is_planned(value) && lives_[i].first != kNoStep) {
        lives_[i].size = in_units(value.size) + scales_size(value);
      }
    }
    for (std::size_t step = 0; step < runtime.num_ops; ++step) {
      overwrite(step);
    }
  }

  // The value in whose place it lies.
  std::size_t owner(std::size_t value) const { return owners_[value]; }
  const Life& of(std::size_t owner) const { return lives_[owner]; }

 private:
  void touch(std::uint32_t id, std::size_t step) {
    if (id == XNN_INVALID_VALUE_ID) {
      return;
    }
    Life& life = lives_[id];
    life.first = std::min(life.first, step);
    life.last = step;
  }

  // Lets an operator write over an input that nothing needs any more. A result of as many bytes as the input
  // has its shape: an input that is repeated is smaller.
  void overwrite(std::size_t step) {
    const xnn_operator_data& data = runtime_.opdata[step];
    if (!works_in_place(data.type) || data.num_outputs != 1 || data.outputs[0] == XNN_INVALID_VALUE_ID) {
      return;
    }
    const std::uint32_t output = data.outputs[0];
    for (std::uint32_t i = 0; i < data.num_inputs; ++i) {
      const std::uint32_t input = data.inputs[i];
      if (input == XNN_INVALID_VALUE_ID || !may_overwrite(input, output, step)) {
        continue;
      }
      const std::size_t owner = owners_[input];
      owners_[output] = owner;
      lives_[owner].last = lives_[output].last;
      lives_[owner].size = std::max(lives_[owner].size, lives_[output].size);
      lives_[output].size = 0;
      return;
    }
  }

  bool may_overwrite(std::uint32_t input, std::uint32_t output, std::size_t step) const {
    const xnn_value& from = runtime_.values[input];
    const xnn_value& to = runtime_.values[output];
    // What is quantized by rows has scales beside them.
    return is_planned(from) && is_planned(to) && input != output && from.datatype != xnn_datatype_qdint8 &&
           to.datatype != xnn_datatype_qdint8 && xnn_tensor_get_size(&from) == xnn_tensor_get_size(&to) &&
           last_uses_[input] == step && lives_[output].first == step && owners_[output] == output;
  }

  const xnn_runtime& runtime_;
  std::vector<Life> lives_;
  std::vector<std::size_t> owners_;
  std::vector<std::size_t> last_uses_;  // of the value itself: its owner may live longer
};

}  // namespace

std::size_t least_size(const std::vector<Life>& lives) {
  std::size_t steps = 0;
  for (const Life& life : lives) {
    steps = std::max(steps, life.last + 1);
  }
  std::vector<std::size_t> begin(steps + 1);
  std::vector<std::size_t> end(steps + 1);
  for (const Life& life : lives) {
    begin[life.first] += life.size;
    end[life.last + 1] += life.size;
  }
  std::size_t now = 0;
  std::size_t most = 0;
  for (std::size_t i = 0; i < steps; ++i) {
    now += begin[i] - end[i];
    most = std::max(most, now);
  }
  return most;
}

Places find_places(const std::vector<Life>& lives) {
  std::vector<std::size_t> order(lives.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  // By the greatest keys; the same on every system, for no two are alike.
  const auto sort_by = [&](auto key) {
    std::sort(order.begin(), order.end(), [&](std::size_t one, std::size_t other) {
      const auto first = key(lives[one]);
      const auto second = key(lives[other]);
      return first != second ? first > second : one < other;
    });
  };
  const auto length = [](const Life& life) { return life.last - life.first; };
  sort_by([&](const Life& life) { return std::pair(life.size, length(life)); });
  Places best = place_by(order, lives);
  const std::size_t least = least_size(lives);
  const auto try_order = [&] {
    if (best.size == least || lives.size() > kFewLives) {
      return;
    }
    Places other = place_by(order, lives);
    if (other.size < best.size) {
      best = std::move(other);
    }
  };
  // What stays longest, at the beginning of the block.
  sort_by([&](const Life& life) { return std::pair(length(life), life.size); });
  try_order();
  // As they come.
  sort_by([&](const Life& life) { return std::pair(SIZE_MAX - life.first, life.size); });
  try_order();
  return best;
}

bool WorkMemory::hold(std::size_t bytes) {
  if (bytes <= size_) {
    return true;
  }
  // The old block goes first: no value outlives a graph's execution.
  block_ = Blocks();
  ++version_;
  data_ = block_.allocate(bytes);
  size_ = data_ == nullptr ? 0 : bytes;
  return data_ != nullptr;
}

xnn_status MemoryPlan::reshape(xnn_runtime_t runtime) {
  for (std::size_t i = 0; i < runtime->num_values; ++i) {
    xnn_value& value = runtime->values[i];
    // Rows quantized by themselves may be more in fewer bytes.
    if (value.datatype == xnn_datatype_qdint8 && is_planned(value)) {
      value.size = 0;
    }
  }
  for (std::size_t i = 0; i < runtime->num_ops; ++i) {
    xnn_operator_data& data = runtime->opdata[i];
    if (data.operator_objects[0] == nullptr) {
      continue;  // joined with another one
    }
    const xnn_status status = data.reshape(&data, runtime->values, runtime->num_values, runtime->threadpool);
    if (status != xnn_status_success && status != xnn_status_reallocation_required) {
      return status;
    }
  }
  return xnn_status_success;
}

xnn_status MemoryPlan::make(const xnn_runtime& runtime) {
  std::size_t sum = 0;
  for (std::size_t i = 0; i < runtime.num_values; ++i) {
    const xnn_value& value = runtime.values[i];
    if (value.type != xnn_value_type_invalid && value.allocation_type == xnn_allocation_type_persistent) {
      return xnn_status_unsupported_parameter;  // no graph that is built here has such a value
    }
    if (is_planned(value) && (value.size > kMostPlanned || (sum += value.size) > kMostPlanned)) {
      return xnn_status_out_of_memory;
    }
  }
  for (std::size_t i = 0; i < runtime.num_ops; ++i) {
    const std::size_t own = runtime.opdata[i].workspace_size;
    if (own > kMostPlanned || (sum += own) > kMostPlanned) {
      return xnn_status_out_of_memory;
    }
  }
  const Lives lives(runtime);
  std::vector<Life> all;
  for (std::size_t i = 0; i < runtime.num_values; ++i) {
    all.push_back(lives.of(i).size == 0 ? Life() : lives.of(i));
  }
  for (std::size_t i = 0; i < runtime.num_ops; ++i) {
    all.push_back({i, i, in_units(runtime.opdata[i].workspace_size)});
  }
  const Places places = find_places(all);
  values_.resize(runtime.num_values);
  for (std::size_t i = 0; i < values_.size(); ++i) {
    values_[i] = places.offsets[lives.owner(i)];
  }
  operators_.assign(places.offsets.begin() + static_cast<std::ptrdiff_t>(values_.size()),
                    places.offsets.end());
  // Kernels of sparse layers read twice as far as others.
  size_ = places.size == 0 ? 0 : places.size + 2 * XNN_EXTRA_BYTES;
  return xnn_status_success;
}

xnn_status MemoryPlan::apply(xnn_runtime_t runtime, WorkMemory* memory) const {
  if (!memory->hold(size_)) {
    return xnn_status_out_of_memory;
  }
  for (std::size_t i = 0; i < values_.size(); ++i) {
    xnn_value& value = runtime->values[i];
    if (!is_planned(value)) {
      continue;
    }
    value.data = memory->data() + values_[i];
    if (value.datatype == xnn_datatype_qdint8) {
      value.quantization.dynamic_params =
          reinterpret_cast<xnn_quantization_params*>(memory->data() + values_[i] + in_units(value.size));
    }
  }
  for (std::size_t i = 0; i < operators_.size(); ++i) {
    runtime->opdata[i].workspace = memory->data() + operators_[i];
  }
  return xnn_status_success;
}

}  // namespace slipway::lean
