#include "lean/xnnpack/xnn_delegate.h"

#include <xnnpack/operator.h>
#include <xnnpack/subgraph.h>

#include <algorithm>
#include <cstring>

#include "lean/kernels/elements.h"
#include "lean/xnnpack/blocking.h"
#include "lean/xnnpack/own_kernels.h"
#include "lean/xnnpack/winograd.h"
#include "program_file.h"

namespace slipway::lean {
namespace {

constexpr std::size_t kCacheLine = 64;  // bytes of the cache
// What a delegate's start is waited for; XNNPACK looks for the rest while it computes.
constexpr std::size_t kOperatorsFetched = 8;
constexpr std::size_t kContextFetched = 256;  // bytes

// How the graph sees a tensor: dimensions in the order in which they lie in memory. A single number has as
// many of 1 as the graph gave it.
Dims memory_dims(const TensorView& view, std::size_t rank) {
  Dims dims;
  for (dims.rank = 0; dims.rank < rank; ++dims.rank) {
    dims[dims.rank] = view.rank == rank ? static_cast<std::size_t>(view.sizes[view.order[dims.rank]]) : 1;
  }
  return dims;
}

// XNNPACK writes indices as 32-bit numbers; the program may have a tensor of 64-bit ones for them.
void widen_indices(TensorView* view) {
  const std::size_t count = view->count();
  for (std::size_t i = count; i-- > 0;) {
    std::int32_t narrow = 0;
    std::memcpy(&narrow, view->data + i * sizeof(narrow), sizeof(narrow));
    const std::int64_t wide = narrow;
    std::memcpy(view->data + i * sizeof(wide), &wide, sizeof(wide));
  }
}

}  // namespace

XnnContext::~XnnContext() {
  if (kHasXnnpack && workspace_ != nullptr) {
    xnn_release_workspace(workspace_);
  }
  end_threads();
  if (started_) {
    xnn_deinitialize();
  }
}

void XnnContext::end_threads() {
  if (own_threads_) {
    pthreadpool_destroy(threads_);
  }
  threads_ = nullptr;
}

void XnnContext::use_threads(pthreadpool_t threads) {
  end_threads();
  own_threads_ = false;
  threads_ = threads;
}

Status XnnContext::start() {
  if (started_) {
    return {};
  }
  unused_ = leave_unused(limits_.unused_features);
  const xnn_status status = xnn_initialize(nullptr);
  if (status == xnn_status_unsupported_hardware) {
    return {Code::kMissingBackend,
            "XNNPACK does not run on this processor: it is below the target's floor.",
            "./inv targets lists what each target needs; build for the device's own",
            {kXnnpackBackend}};
  }
  const bool workspace = !kHasXnnpack || xnn_create_workspace(&workspace_) == xnn_status_success;
  if (status != xnn_status_success || !workspace) {
    return {Code::kMemory, "XNNPACK has no memory to begin with.", "use a device with more memory"};
  }
  if (kHasXnnpack) {
    correct_kernel_choices();
    if (!limits_.kleidiai) {
      forget_kleidiai_kernels();
    }
  }
  started_ = true;
  return {};
}

Result<unsigned> XnnContext::set_threads(unsigned count) {
  end_threads();
  own_threads_ = true;
  threads_ = count > 1 ? pthreadpool_create(count) : nullptr;
  if (count > 1 && threads_ == nullptr) {
    return Status(Code::kMemory, "Cannot start " + std::to_string(count) + " threads.",
                  "ask for fewer (--cpu_threads)");
  }
  return threads_ == nullptr ? 1U : static_cast<unsigned>(pthreadpool_get_threads_count(threads_));
}

Result<std::unique_ptr<XnnDelegate>> XnnDelegate::load(const XnnContext& context, const GraphCheck& check,
                                                       PackedWeights& weights, const std::string& what,
                                                       bool profile, const GraphPart* part) {
  auto made = std::make_unique<XnnDelegate>();
  made->what_ = what;
  made->profile_ = profile;
  made->check_ = &check;
  Status done = made->prepare(context, weights, part, false);
  // Half precision is there on some processors only; every one computes in float32.
  if (done.code() == Code::kMissingOperator && made->graph_->has_halves() &&
      made->prepare(context, weights, part, true).ok()) {
    done = {};
  }
  SLIPWAY_RETURN_IF_ERROR(done);
  for (const External& external : made->graph_->externals()) {
    made->bound_.push_back({external, {}, nullptr, {}});
  }
  made->graph_->forget_subgraph();
  return made;
}

Status XnnDelegate::prepare(const XnnContext& context, PackedWeights& weights, const GraphPart* part,
                            bool widen) {
  graph_ = std::make_unique<GraphBuilder>(*check_, what_, part, widen);
  SLIPWAY_RETURN_IF_ERROR(graph_->build());
  xnn_runtime_t runtime = nullptr;
  threads_ = context.threads() == nullptr ? 1 : pthreadpool_get_threads_count(context.threads());
  const ByteTables tables(graph_->subgraph());
  const TileChoice tiles(graph_->subgraph(), &weights, context.threads());
  const xnn_status status =
      xnn_create_runtime_v4(graph_->subgraph(), weights.provider(), context.workspace(), context.threads(),
                            profile_ ? XNN_FLAG_BASIC_PROFILING : 0, &runtime);
  if (status != xnn_status_success) {
    return fault("prepare", status);
  }
  runtime_.reset(runtime);
  if (const xnn_status installed = tables.install(runtime); installed != xnn_status_success) {
    return fault("prepare", installed);
  }
  memory_ = context.memory();
  hook_winograd(runtime);
  hook_im2col(runtime, *graph_->subgraph());
  return {};
}

Status XnnDelegate::fault(const char* step, xnn_status status) const {
  const std::string text = what_ + ": XNNPACK cannot " + step + " the graph (" + name_of(status) + ").";
  switch (status) {
    case xnn_status_out_of_memory:
      return {Code::kMemory, text, "use a smaller program or input, or a device with more memory"};
    case xnn_status_unsupported_hardware:
    case xnn_status_unsupported_parameter:
      return {Code::kMissingOperator, text,
              "export with another scheme (fp32 runs on every processor), or leave the operator outside the "
              "delegate"};
    default:
      return {Code::kFile, text, kCopyAgain};
  }
}

Status XnnDelegate::reshape_inputs(const std::vector<TensorView*>& arguments, bool* changed) {
  for (Bound& bound : bound_) {
    const TensorView& view = *arguments[bound.external.id];
    if (bound.external.output) {
      continue;
    }
    const Dims dims = memory_dims(view, bound.external.rank);
    if (shaped_ && bound.dims == dims) {
      continue;
    }
    const xnn_status status =
        xnn_reshape_external_value(runtime_.get(), bound.external.id, dims.rank, dims.size.data());
    if (status != xnn_status_success) {
      return fault("take the input of", status);
    }
    bound.dims = dims;
    *changed = true;
  }
  return {};
}

// Gives every output the shape that XNNPACK found, and makes sure that its memory holds it.
Status XnnDelegate::resize_outputs(const std::vector<TensorView*>& arguments, const GraphCheck* whole) {
  for (const Bound& bound : bound_) {
    if (!bound.external.output) {
      continue;
    }
    TensorView& view = *arguments[bound.external.id];
    Dims found;
    const xnn_status status =
        xnn_get_external_value_shape(runtime_.get(), bound.external.id, &found.rank, found.size.data());
    if (status != xnn_status_success) {
      return fault("tell the output of", status);
    }
    if (whole != nullptr && found != whole->shape_of(bound.external.id)) {
      return {Code::kExecution,
              what_ + ": XNNPACK makes " + shape_text(found) + " of its output " +
                  std::to_string(bound.external.id) + ", and the graph says " +
                  shape_text(whole->shape_of(bound.external.id)) + ".",
              "report it with the program: this is a defect of Slipway"};
    }
    if (found.rank == view.rank) {
      std::int64_t sizes[XNN_MAX_TENSOR_DIMS];
      for (std::size_t i = 0; i < found.rank; ++i) {
        sizes[view.order[i]] = static_cast<std::int64_t>(found[i]);
      }
      SLIPWAY_RETURN_IF_ERROR(resize(&view, sizes, found.rank));
    }
    std::size_t count = 0;
    const bool indices = view.dtype == DType::kInt64 && bits_of(bound.external.datatype) == 32;
    const bool fits = count_all(found, &count) && count == view.count() && view.bytes() <= view.capacity &&
                      (indices || size_of(view.dtype) * 8 == bits_of(bound.external.datatype));
    if (view.constant || !fits) {
      return {Code::kFile,
              what_ + ": its output " + std::to_string(bound.external.id) + " does not fit the tensor " +
                  to_text(view.shape()) + " of the program",
              kCopyAgain};
    }
  }
  return {};
}

Status XnnDelegate::bind(const std::vector<TensorView*>& arguments, bool reshaped) {
  bool changed = reshaped;
  if (changed || memory_version_ != memory_->version()) {
    // Another graph needed more memory, or this one does now.
    const xnn_status placed = plan_.apply(runtime_.get(), memory_.get());
    if (placed != xnn_status_success) {
      shaped_ = false;
      return fault("place the values of", placed);
    }
    memory_version_ = memory_->version();
    changed = true;
  }
  for (Bound& bound : bound_) {
    TensorView& view = *arguments[bound.external.id];
    void* data = view.data;
    if (bound.external.widened) {
      // Behind the last element XNNPACK may read.
      bound.wide.resize(view.count() + XNN_EXTRA_BYTES / sizeof(float));
      data = bound.wide.data();
    }
    changed = changed || bound.data != data;
    bound.data = data;
  }
  if (!changed) {
    return {};
  }
  std::vector<xnn_external_value> external_values;
  for (const Bound& bound : bound_) {
    external_values.push_back({bound.external.id, bound.data});
  }
  const xnn_status status =
      xnn_setup_runtime_v2(runtime_.get(), external_values.size(), external_values.data());
  return status == xnn_status_success ? Status() : fault("set up", status);
}

// Runs the graph, whose shapes and memory are known, between conversions of what is not of XNNPACK's types.
Status XnnDelegate::invoke(const std::vector<TensorView*>& arguments) {
  for (Bound& bound : bound_) {
    if (bound.external.widened && !bound.external.output) {
      const TensorView& view = *arguments[bound.external.id];
      lean::load(view.dtype, view.data, 1, view.count(), bound.wide.data());
    }
  }
  const xnn_status status = xnn_invoke_runtime(runtime_.get());
  if (status != xnn_status_success) {
    return fault("run", status);
  }
  for (const Bound& bound : bound_) {
    TensorView& view = *arguments[bound.external.id];
    if (!bound.external.output) {
      continue;
    }
    if (bound.external.widened) {
      lean::store(view.dtype, bound.wide.data(), view.count(), view.data, 1);
    } else if (view.dtype == DType::kInt64) {
      widen_indices(&view);
    }
  }
  return {};
}

Status XnnDelegate::execute(const std::vector<TensorView*>& arguments, const GraphCheck* whole) {
  bool changed = !shaped_;
  SLIPWAY_RETURN_IF_ERROR(reshape_inputs(arguments, &changed));
  if (changed) {
    shaped_ = false;
    xnn_status status = MemoryPlan::reshape(runtime_.get());
    status = status == xnn_status_success ? plan_.make(*runtime_) : status;
    if (status != xnn_status_success) {
      return fault("reshape", status);
    }
    set_blocks(runtime_.get(), threads_);
    shaped_ = true;
  }
  SLIPWAY_RETURN_IF_ERROR(resize_outputs(arguments, whole));
  SLIPWAY_RETURN_IF_ERROR(bind(arguments, changed));
  return invoke(arguments);
}

Status XnnDelegate::repeat(const std::vector<TensorView*>& arguments, const GraphCheck* whole) {
  // Another graph may have moved the memory that all of them share.
  return memory_version_ == memory_->version() ? invoke(arguments) : execute(arguments, whole);
}

void add_lines(const void* from, std::size_t size, Lines* lines) {
  const auto* begin = static_cast<const std::uint8_t*>(from);
  for (const auto* at = begin - reinterpret_cast<std::uintptr_t>(begin) % kCacheLine; at < begin + size;
       at += kCacheLine) {
    lines->push_back(at);
  }
}

void XnnDelegate::add_lines(Lines* lines) const {
  lean::add_lines(this, sizeof(*this), lines);
  lean::add_lines(bound_.data(), bound_.size() * sizeof(Bound), lines);
  lean::add_lines(runtime_.get(), sizeof(*runtime_), lines);
  for (std::size_t i = 0; i < std::min(runtime_->num_ops, kOperatorsFetched); ++i) {
    const auto& operators = runtime_->opdata[i].operator_objects;
    lean::add_lines(operators, sizeof(operators), lines);
    for (const xnn_operator_t op : operators) {
      if (op != nullptr) {
        lean::add_lines(&op->flags, sizeof(op->flags), lines);
        lean::add_lines(&op->type, sizeof(op->type), lines);
        lean::add_lines(op->compute, sizeof(op->compute[0]), lines);
        lean::add_lines(&op->context, std::min(sizeof(op->context), kContextFetched), lines);
        lean::add_lines(&op->state, sizeof(op->state), lines);
      }
    }
  }
}

std::vector<KernelUse> XnnDelegate::kernels() const {
  // Before its first execution XNNPACK has chosen for no number of rows yet.
  if (!shaped_ && MemoryPlan::reshape(runtime_.get()) != xnn_status_success) {
    return {};
  }
  return kernels_of(runtime_.get());
}

std::vector<OperatorTime> XnnDelegate::times() const {
  std::size_t size = 0;
  std::vector<OperatorTime> found;
  if (!profile_ || xnn_get_runtime_profiling_info(runtime_.get(), xnn_profile_info_operator_name, 0, nullptr,
                                                  &size) != xnn_status_out_of_memory) {
    return found;
  }
  std::vector<char> names(size + 1);
  std::size_t bytes = 0;
  xnn_get_runtime_profiling_info(runtime_.get(), xnn_profile_info_operator_name, size, names.data(), &bytes);
  xnn_get_runtime_profiling_info(runtime_.get(), xnn_profile_info_operator_timing, 0, nullptr, &bytes);
  std::vector<std::uint64_t> times(bytes / sizeof(std::uint64_t));
  xnn_get_runtime_profiling_info(runtime_.get(), xnn_profile_info_operator_timing, bytes, times.data(),
                                 &bytes);
  const char* name = names.data();
  for (const std::uint64_t time : times) {
    if (name >= names.data() + size) {
      break;
    }
    found.push_back({name, time * 1000});  // from microseconds
    name += found.back().name.size() + 1;
  }
  return found;
}

}  // namespace slipway::lean
