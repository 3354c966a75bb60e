#include "lean/method/delegate.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "lean/method/recorder.h"
#include "lean/xnnpack/kernel_choices.h"
#include "lean/xnnpack/packed_weights.h"
#include "program_file.h"

namespace slipway::lean {
namespace {

// What a layer takes and gives.
DType dtype_of(Arithmetic arithmetic) {
  switch (arithmetic) {
    case Arithmetic::kDynamic8:
    case Arithmetic::kSingle:
      return DType::kFloat32;
    case Arithmetic::kHalf:
      return DType::kFloat16;
    default:
      return DType::kInt8;
  }
}

// "Add (ND) #5" is the fifth of its kind.
class Numbering {
 public:
  std::string operator()(const std::string& kind) { return kind + " #" + std::to_string(++counts_[kind]); }

 private:
  std::map<std::string, unsigned> counts_;
};

}  // namespace

Result<std::unique_ptr<Delegate>> Delegate::load(const XnnContext& context, PackedWeights& weights,
                                                 XnnPayload payload, const std::string& what, bool profile,
                                                 bool values) {
  std::unique_ptr<Delegate> made(new Delegate(context, what, profile, values));
  Split split;
  made->payload_ = std::make_unique<XnnPayload>(std::move(payload));
  SLIPWAY_TRY(GraphCheck checked, GraphCheck::read(*made->payload_, what));
  made->check_ = std::make_unique<GraphCheck>(std::move(checked));
  SLIPWAY_RETURN_IF_ERROR(check_linked(kernel_types(*made->check_), what));
  const bool layers = context.limits().kleidiai && kai_has_any();
  if (layers || values) {
    const HasKernel none = [](const MatrixLayer& /*layer*/) { return false; };
    split = split_graph(*made->check_, layers ? kai_has : none, values);
  }
  if (split.stages.empty()) {
    split.stages.emplace_back();
  }
  weights.expect(made->payload_->constants(), packing_forms(*made->check_));
  SLIPWAY_RETURN_IF_ERROR(made->make_parts(split, weights));
  Status done = made->make_crossings(split);
  made->probes_ = std::move(split.probes);
  return done.ok() ? Result<std::unique_ptr<Delegate>>(std::move(made)) : done;
}

Status Delegate::make_parts(const Split& split, PackedWeights& weights) {
  for (const Stage& stage : split.stages) {
    Part& part = parts_.emplace_back();
    if (stage.is_layer) {
      SLIPWAY_TRY(part.layer, make_kai_layer(stage.layer, weights));
      part.shape.rows = stage.layer.rows;
      part.shape.batches = stage.layer.batches;
    } else {
      SLIPWAY_TRY(part.graph, XnnDelegate::load(context_, *check_, weights, what_, profile_,
                                                split.stages.size() == 1 ? nullptr : &stage.part));
    }
  }
  return {};
}

Status Delegate::make_crossings(const Split& split) {
  crossings_.resize(split.crossings.size());
  for (std::size_t i = 0; i < crossings_.size(); ++i) {
    TensorView& view = crossings_[i];
    const Crossing& crossing = split.crossings[i];
    Shape shape;
    for (std::size_t j = 0; j < crossing.dims.rank; ++j) {
      shape.push_back(static_cast<std::int64_t>(crossing.dims[j]));
    }
    view.dtype = dtype_of_value(crossing.datatype);
    std::size_t count = 0;
    if (!count_elements(shape, size_of(view.dtype), &count)) {
      return {Code::kFile, what_ + ": a value in it has an impossible shape.", kCopyAgain};
    }
    view.rank = static_cast<std::uint8_t>(shape.size());
    view.dynamism = Dynamism::kBounded;
    for (std::uint8_t j = 0; j < view.rank; ++j) {
      view.sizes[j] = view.bounds[j] = shape[j];
      view.order[j] = j;
    }
    view.capacity = count * size_of(view.dtype);
  }
  allocate_crossings(split);
  return {};
}

// A value takes the memory of one that no stage needs any more, the first that there is.
void Delegate::allocate_crossings(const Split& split) {
  std::vector<std::size_t> order(crossings_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t one, std::size_t other) {
    return split.crossings[one].made < split.crossings[other].made;
  });
  std::vector<std::size_t> of(crossings_.size());
  for (const std::size_t i : order) {
    const Crossing& crossing = split.crossings[i];
    auto block = std::find_if(blocks_.begin(), blocks_.end(),
                              [&](const Block& candidate) { return candidate.last < crossing.made; });
    if (block == blocks_.end()) {
      block = blocks_.emplace(block);
    }
    block->size = std::max(block->size, crossings_[i].capacity);
    block->last = crossing.last;
    of[i] = static_cast<std::size_t>(block - blocks_.begin());
  }
  for (Block& block : blocks_) {
    block.memory.resize(block.size + 2 * XNN_EXTRA_BYTES);
  }
  for (std::size_t i = 0; i < crossings_.size(); ++i) {
    crossings_[i].data = blocks_[of[i]].memory.data();
  }
}

bool Delegate::read_shape(const MatrixLayer& layer, const TensorView& input, const TensorView* other,
                          LayerShape* shape) {
  const auto size = [](const TensorView& view, std::size_t i) {
    return static_cast<std::size_t>(view.sizes[view.order[i]]);
  };
  *shape = {1, layer.batches, layer.depth, layer.outputs, 0, 0, 0, 0};
  std::size_t batches = 1;  // of rows
  for (std::size_t i = 0; i + 1 < input.rank; ++i) {
    batches = shape->rows;
    shape->rows *= size(input, i);
  }
  if (layer.windowed) {
    if (input.rank != 4) {
      return false;
    }
    shape->height = size(input, 1);
    shape->width = size(input, 2);
    if (!windows_along(shape->height, layer.down, false, &shape->down) ||
        !windows_along(shape->width, layer.across, false, &shape->across)) {
      return false;
    }
    shape->rows = size(input, 0) * shape->down * shape->across;
    return size(input, 3) == layer.channels;
  }
  if (layer.given) {
    if (other == nullptr || other->rank != input.rank || input.rank < 2) {
      return false;
    }
    shape->batches = batches;
    shape->depth = size(*other, other->rank - 2U);
    shape->outputs = size(*other, other->rank - 1U);
    for (std::size_t i = 0; i + 2 < input.rank; ++i) {
      if (size(*other, i) != size(input, i)) {
        return false;
      }
    }
  }
  return size(input, input.rank - 1U) == shape->depth && (shape->batches == 1 || shape->batches == batches);
}

Status Delegate::run_layer(Part* part) {
  const MatrixLayer& layer = part->layer->layer();
  const auto argument = [this](std::uint32_t index) {
    return index < arguments_.size() ? arguments_[index] : nullptr;
  };
  TensorView* input = argument(layer.input);
  TensorView* other = layer.given ? argument(layer.other) : nullptr;
  TensorView* output = argument(layer.output);
  const Status unfit = {Code::kFile, what_ + ": the tensors of a layer do not fit it.", kCopyAgain};
  const DType dtype = dtype_of(layer.arithmetic);
  if (input == nullptr || output == nullptr || input->dtype != dtype || output->dtype != dtype ||
      (other != nullptr && other->dtype != dtype) || input->rank == 0 || input->rank != output->rank ||
      output->constant || !read_shape(layer, *input, other, &part->shape)) {
    return unfit;
  }
  const LayerShape& shape = part->shape;
  Shape sizes(output->rank);
  for (std::size_t i = 0; i + 1 < input->rank; ++i) {
    sizes[output->order[i]] = input->sizes[input->order[i]];
  }
  if (layer.windowed) {
    sizes[output->order[1]] = static_cast<std::int64_t>(shape.down);
    sizes[output->order[2]] = static_cast<std::int64_t>(shape.across);
  }
  sizes[output->order[output->rank - 1]] = static_cast<std::int64_t>(shape.outputs);
  SLIPWAY_RETURN_IF_ERROR(resize(output, sizes));
  if (output->bytes() > output->capacity) {
    return unfit;
  }
  part->layer->run(shape, input->data, other == nullptr ? nullptr : other->data, output->data,
                   context_.threads());
  return {};
}

void Delegate::add_lines(std::size_t arguments, Lines* lines) {
  lean::add_lines(this, sizeof(*this), lines);
  calls_.reserve(arguments);
  lean::add_lines(calls_.data(), arguments * sizeof(TensorView), lines);
  for (const Part& part : parts_) {
    lean::add_lines(&part, sizeof(part), lines);
    if (part.graph != nullptr) {
      part.graph->add_lines(lines);
    }
  }
}

bool Delegate::calls_before(const std::vector<TensorView*>& arguments) const {
  const auto same = [](const TensorView& before, const TensorView* view) {
    return view == nullptr ? before.data == nullptr
                           : before.same_place(*view) && before.capacity == view->capacity;
  };
  return !calls_.empty() &&
         std::equal(calls_.begin(), calls_.end(), arguments.begin(), arguments.end(), same);
}

Status Delegate::execute(const std::vector<TensorView*>& arguments) {
  if (parts_.size() == 1 && parts_.front().graph != nullptr && !keeps_values_) {
    XnnDelegate& graph = *parts_.front().graph;
    if (calls_before(arguments)) {
      return graph.repeat(arguments, check_.get());
    }
    calls_.clear();
    SLIPWAY_RETURN_IF_ERROR(check_->accept(arguments));
    SLIPWAY_RETURN_IF_ERROR(graph.execute(arguments, check_.get()));
    for (const TensorView* view : arguments) {
      calls_.push_back(view == nullptr ? TensorView() : *view);
    }
    return {};
  }
  SLIPWAY_RETURN_IF_ERROR(check_->accept(arguments));
  values_.clear();
  arguments_ = arguments;
  arguments_.resize(check_->externals());
  for (TensorView& crossing : crossings_) {
    arguments_.push_back(&crossing);
  }
  for (Part& part : parts_) {
    const std::uint64_t start = profile_ ? Recorder::now() : 0;
    SLIPWAY_RETURN_IF_ERROR(part.graph != nullptr ? part.graph->execute(arguments_) : run_layer(&part));
    part.nanoseconds = profile_ ? Recorder::now() - start : 0;
    if (keeps_values_) {
      keep_values(static_cast<std::size_t>(&part - parts_.data()));
    }
  }
  return {};
}

// At once: the next stage may use the same memory.
void Delegate::keep_values(std::size_t stage) {
  for (const Probe& probe : probes_) {
    if (probe.stage != stage || probe.external_id >= arguments_.size() ||
        arguments_[probe.external_id] == nullptr) {
      continue;
    }
    const xnn::XNode& node = *check_->nodes()[probe.node].node;
    values_.push_back({xnn::EnumNameXNodeUnion(node.xnode_union_type()), probe.node,
                       tensor_of(*arguments_[probe.external_id])});
  }
}

std::optional<Fallback> Delegate::fallback() const {
  for (const Part& part : parts_) {
    if (part.graph != nullptr && part.graph->widened()) {
      return Fallback{what_, name_of(DType::kFloat16), name_of(DType::kFloat32),
                      "XNNPACK has no kernels in half precision for this processor"};
    }
  }
  return {};
}

std::vector<OperatorTime> Delegate::times() const {
  std::vector<OperatorTime> all;
  Numbering numbered;
  for (const Part& part : parts_) {
    std::vector<OperatorTime> times;
    if (part.graph != nullptr) {
      times = part.graph->times();
    } else if (profile_) {
      times.push_back({part.layer->use(part.shape).node, part.nanoseconds});
    }
    for (const OperatorTime& time : times) {
      all.push_back({numbered(time.name), time.nanoseconds});
    }
  }
  return all;
}

std::vector<KernelUse> Delegate::kernels() const {
  std::vector<KernelUse> all;
  Numbering numbered;
  for (const Part& part : parts_) {
    for (KernelUse& use : part.graph != nullptr ? part.graph->kernels()
                                                : std::vector<KernelUse>{part.layer->use(part.shape)}) {
      use.node = numbered(use.node);
      if (!use.kernel.empty()) {
        all.push_back(std::move(use));
      }
    }
  }
  return all;
}

}  // namespace slipway::lean
