#include "delegate.h"

#include <map>
#include <utility>

#include "file_format.h"
#include "xnn_packing.h"

namespace slipway::lean {
namespace {

DType dtype_of(xnn::XNNDatatype datatype) {
  switch (datatype) {
    case xnn::XNNDatatype::xnn_datatype_fp32:
      return DType::kFloat32;
    case xnn::XNNDatatype::xnn_datatype_fp16:
      return DType::kFloat16;
    case xnn::XNNDatatype::xnn_datatype_qint8:
      return DType::kInt8;
    default:
      return DType::kUInt8;
  }
}

// "Add (ND) #2" of a part is "Add (ND) #5" of the whole when three came before.
class Numbering {
 public:
  std::string operator()(const std::string& name) {
    const std::string kind = name.substr(0, name.rfind(" #"));
    return kind + " #" + std::to_string(++counts_[kind]);
  }

 private:
  std::map<std::string, unsigned> counts_;
};

}  // namespace

Result<std::unique_ptr<Delegate>> Delegate::load(const XnnContext& context, const DataStore& store,
                                                 PackedWeights& weights, Bytes payload,
                                                 const std::string& what, bool profile) {
  std::unique_ptr<Delegate> made(new Delegate(context, what, profile));
  Split split;
  if (kai_kernels() != nullptr) {
    Result<XnnPayload> read = XnnPayload::read(payload, store, what);
    if (!read.ok()) {
      return read.status();
    }
    made->payload_ = std::make_unique<XnnPayload>(std::move(read.value()));
    GraphBuilder whole(*made->payload_, what);
    const Status built = whole.build();
    if (!built.ok()) {
      return built;
    }
    made->externals_ = made->payload_->graph().num_externs();
    split = split_graph(*made->payload_, whole.uses());
  }
  if (split.stages.empty()) {
    split.stages.emplace_back();
  }
  Status done = made->make_parts(split, store, weights, payload);
  if (done.ok()) {
    done = made->make_crossings(split);
  }
  return done.ok() ? Result<std::unique_ptr<Delegate>>(std::move(made)) : done;
}

Status Delegate::make_parts(const Split& split, const DataStore& store, PackedWeights& weights,
                            Bytes payload) {
  for (const Stage& stage : split.stages) {
    Part& part = parts_.emplace_back();
    if (stage.is_layer) {
      weights.expect(payload_->constants(), packing_forms(*payload_));
      Result<std::unique_ptr<KaiLinear>> layer = KaiLinear::make(*kai_kernels(), stage.layer, weights);
      if (!layer.ok()) {
        return layer.status();
      }
      part.layer = std::move(layer.value());
      part.rows = stage.layer.rows;
    } else {
      Result<std::unique_ptr<XnnDelegate>> graph =
          XnnDelegate::load(context_, store, weights, payload, what_, profile_,
                            split.stages.size() == 1 ? nullptr : &stage.part);
      if (!graph.ok()) {
        return graph.status();
      }
      part.graph = std::move(graph.value());
    }
  }
  return {};
}

Status Delegate::make_crossings(const Split& split) {
  crossings_.resize(split.crossings.size());
  for (std::size_t i = 0; i < crossings_.size(); ++i) {
    View& view = crossings_[i].view;
    const Crossing& crossing = split.crossings[i];
    Shape shape;
    for (const std::size_t dim : crossing.dims) {
      shape.push_back(static_cast<std::int64_t>(dim));
    }
    view.dtype = dtype_of(crossing.datatype);
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
    crossings_[i].memory.resize(view.capacity + 2 * XNN_EXTRA_BYTES);
    view.data = crossings_[i].memory.data();
  }
  return {};
}

Status Delegate::run_layer(Part* part) {
  const LinearLayer& layer = part->layer->layer();
  View* input = layer.input < arguments_.size() ? arguments_[layer.input] : nullptr;
  View* output = layer.output < arguments_.size() ? arguments_[layer.output] : nullptr;
  if (input == nullptr || output == nullptr || input->dtype != DType::kFloat32 ||
      output->dtype != DType::kFloat32 || input->rank == 0 || input->rank != output->rank ||
      output->constant ||
      static_cast<std::size_t>(input->sizes[input->order[input->rank - 1]]) != layer.depth) {
    return {Code::kFile, what_ + ": the tensors of a linear layer do not fit it.", kCopyAgain};
  }
  Shape sizes(output->rank);
  part->rows = 1;
  for (std::size_t i = 0; i + 1 < input->rank; ++i) {
    const std::int64_t size = input->sizes[input->order[i]];
    sizes[output->order[i]] = size;
    part->rows *= static_cast<std::size_t>(size);
  }
  sizes[output->order[output->rank - 1]] = static_cast<std::int64_t>(layer.outputs);
  const Status resized = resize(output, sizes);
  if (!resized.ok()) {
    return resized;
  }
  if (output->bytes() > output->capacity) {
    return {Code::kFile, what_ + ": a linear layer's output does not fit its tensor.", kCopyAgain};
  }
  part->layer->run(input->as<float>(), part->rows, output->as<float>(), context_.threads());
  return {};
}

Status Delegate::execute(const std::vector<View*>& arguments) {
  if (parts_.size() == 1 && parts_.front().graph != nullptr) {
    return parts_.front().graph->execute(arguments);
  }
  arguments_ = arguments;
  arguments_.resize(externals_);
  for (Crossed& crossed : crossings_) {
    arguments_.push_back(&crossed.view);
  }
  for (Part& part : parts_) {
    const std::uint64_t start = profile_ ? Recorder::now() : 0;
    const Status done = part.graph != nullptr ? part.graph->execute(arguments_) : run_layer(&part);
    if (!done.ok()) {
      return done;
    }
    part.nanoseconds = profile_ ? Recorder::now() - start : 0;
  }
  return {};
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
      times.push_back({part.layer->use(part.rows).node, part.nanoseconds});
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
    std::vector<KernelUse> uses;
    if (part.graph != nullptr) {
      uses = part.graph->kernels();
    } else {
      uses.push_back(part.layer->use(part.rows));
    }
    for (KernelUse& use : uses) {
      use.node = numbered(use.node);
      all.push_back(std::move(use));
    }
  }
  return all;
}

}  // namespace slipway::lean
