#include "lean/xnnpack/winograd.h"

#include <xnnpack/common.h>
#include <xnnpack/compute.h>
#include <xnnpack/node-type.h>
#include <xnnpack/operator-type.h>
#include <xnnpack/operator.h>
#include <xnnpack/subgraph.h>

#include <new>
#include <type_traits>

#include "lean/xnnpack/own_kernels.h"

namespace slipway::lean {
namespace {

// Far more than nets have, and few enough that no size computed from them is too great for 64 bits.
constexpr std::size_t kMostChannels = std::size_t{1} << 20;

// What a marked operator has besides XNNPACK's own context.
struct Hooked {
  xnn_reshape_operator_fn reshape;
  xnn_setup_operator_fn setup;
  WinogradPlan plan;
};
static_assert(std::is_trivially_copyable_v<Hooked>, "XNNPACK frees it without a destructor");

// Behind the part of XNNPACK's context that its own functions write.
constexpr std::size_t kHookedOffset =
    (sizeof(xnn_operator::context.igemm) + alignof(Hooked) - 1) / alignof(Hooked) * alignof(Hooked);
static_assert(kHookedOffset + sizeof(Hooked) <= sizeof(xnn_operator::context),
              "XNNPACK's operators have room for a plan");

Hooked* hooked_of(xnn_operator_t op) {
  return std::launder(reinterpret_cast<Hooked*>(reinterpret_cast<char*>(&op->context) + kHookedOffset));
}

// Stands for the method where XNNPACK keeps a kernel, and is never called as one.
xnn_igemm_ukernel_fn marker_of(const WinogradKernels& kernels) {
  return reinterpret_cast<xnn_igemm_ukernel_fn>(reinterpret_cast<void (*)()>(kernels.input));
}

const WinogradKernels* own_kernels() {
  return winograd_kernels(float_tiles());
}

WinogradSizes sizes_of(const xnn_operator& op) {
  WinogradSizes sizes;
  sizes.batch = op.batch_size;
  sizes.channels = op.group_input_channels;
  sizes.results = op.group_output_channels;
  sizes.height = op.input_height;
  sizes.width = op.input_width;
  sizes.pixel = op.input_pixel_stride;
  sizes.result_height = op.output_height;
  sizes.result_width = op.output_width;
  sizes.result_pixel = op.output_pixel_stride;
  sizes.top = op.padding_top;
  sizes.left = op.padding_left;
  return sizes;
}

void compute_block(void* context, std::size_t thread, std::size_t strip, std::size_t group) {
  winograd_block(&static_cast<Hooked*>(context)->plan, thread, strip, group);
}

xnn_status reshape_winograd(xnn_operator_data* data, xnn_value* values, std::size_t count,
                            pthreadpool_t pool) {
  xnn_operator_t op = data->operator_objects[0];
  Hooked* hooked = hooked_of(op);
  const std::size_t before = data->workspace_size;
  const xnn_status status = hooked->reshape(data, values, count, pool);
  if ((status != xnn_status_success && status != xnn_status_reallocation_required) ||
      op->state == xnn_run_state_skip) {
    return status;
  }
  const std::size_t threads = pthreadpool_get_threads_count(pool);
  hooked->plan = plan_winograd(*float_tiles(), *own_kernels(), sizes_of(*op), op->ukernel.igemm.nr, threads);
  for (compute_parameters& compute : op->compute) {
    compute.type = xnn_parallelization_type_invalid;
  }
  compute_parameters& compute = op->compute[0];
  compute.type = xnn_parallelization_type_2d_with_thread;
  compute.task_2d_with_thread = &compute_block;
  compute.context_offset = kHookedOffset;
  compute.range[0] = hooked->plan.strips();
  compute.range[1] = hooked->plan.groups();
  data->workspace_size = threads * hooked->plan.thread_elements * sizeof(float);
  data->workspace_alignment = XNN_ALLOCATION_ALIGNMENT;
  return data->workspace_size > before ? xnn_status_reallocation_required : status;
}

xnn_status setup_winograd(const xnn_operator_data* data, const xnn_value* values, std::size_t count,
                          pthreadpool_t pool) {
  xnn_operator_t op = data->operator_objects[0];
  Hooked* hooked = hooked_of(op);
  const xnn_status status = hooked->setup(data, values, count, pool);
  if (status != xnn_status_success || op->state == xnn_run_state_skip) {
    return status;
  }
  const igemm_context& igemm = op->context.igemm.igemm;
  WinogradData& to = hooked->plan.data;
  to.input = static_cast<const float*>(op->input);
  // Without padding only results that do not exist are made of pixels outside: any numbers will do.
  to.zero = op->zero_buffer == nullptr ? to.input : static_cast<const float*>(op->zero_buffer);
  to.weights = static_cast<const float*>(igemm.packed_w);
  to.output = static_cast<float*>(op->output);
  to.work = static_cast<float*>(data->workspace);
  to.limits[0] = igemm.params.f32.scalar.min;
  to.limits[1] = igemm.params.f32.scalar.max;
  return status;
}

struct PanelTask {
  const TileSet* set;
  std::size_t channels;
  std::size_t results;
  std::size_t panel;
  const float* weights;
  const float* bias;
  float* packed;
};

void pack_panel(void* context, std::size_t panel) {
  const auto& task = *static_cast<const PanelTask*>(context);
  pack_winograd(*task.set, *own_kernels(), task.channels, task.results, task.panel, task.weights, task.bias,
                task.packed, panel, panel + 1);
}

}  // namespace

bool can_be_winograd(const xnn_node& node, const xnn_value* values) {
  if (own_kernels() == nullptr || node.type != xnn_node_type_convolution_2d) {
    return false;
  }
  for (std::uint32_t i = 1; i < node.num_inputs; ++i) {
    const xnn_value& value = values[node.inputs[i]];
    if (value.datatype != xnn_datatype_fp32 || value.data == nullptr) {
      return false;
    }
  }
  const auto& params = node.params.convolution_2d;
  return params.kernel_height == 3 && params.kernel_width == 3 && params.subsampling_height == 1 &&
         params.subsampling_width == 1 && params.dilation_height == 1 && params.dilation_width == 1 &&
         params.groups == 1 && params.group_input_channels <= kMostChannels &&
         params.group_output_channels <= kMostChannels && values[node.outputs[0]].shape.num_dims == 4;
}

WinogradSizes winograd_sizes(const xnn_node& node, const xnn_value* values) {
  const auto& params = node.params.convolution_2d;
  const xnn_shape& result = values[node.outputs[0]].shape;
  WinogradSizes sizes;
  sizes.batch = result.dim[0];
  sizes.result_height = result.dim[1];
  sizes.result_width = result.dim[2];
  sizes.channels = params.group_input_channels;
  sizes.results = params.group_output_channels;
  return sizes;
}

Packer winograd_packer(const TileSet& set, const WinogradSizes& sizes, std::size_t panel, const void* weights,
                       const void* bias, pthreadpool_t threads) {
  const std::size_t elements = winograd_packed_elements(sizes.channels, sizes.results, panel);
  PanelTask task = {&set,
                    sizes.channels,
                    sizes.results,
                    panel,
                    static_cast<const float*>(weights),
                    static_cast<const float*>(bias),
                    nullptr};
  const auto pack = [task, threads](std::uint8_t* to) mutable {
    task.packed = reinterpret_cast<float*>(to);
    pthreadpool_parallelize_1d(threads, &pack_panel, &task, (task.results + task.panel - 1) / task.panel, 0);
  };
  return {weights, bias, elements * sizeof(float), pack, "winograd"};
}

void mark_winograd(xnn_operator_t op) {
  const xnn_igemm_ukernel_fn marker = marker_of(*own_kernels());
  for (xnn_hmp_igemm_ukernel& one : op->ukernel.igemm.igemm_cases) {
    for (xnn_igemm_ukernel_fn& function : one.function) {
      function = function == nullptr ? nullptr : marker;
    }
  }
  // Otherwise XNNPACK would keep the addresses of all windows' pixels.
  op->flags |= XNN_FLAG_TRANSIENT_INDIRECTION_BUFFER;
}

bool is_winograd(const xnn_operator& op) {
  const WinogradKernels* kernels = own_kernels();
  return kernels != nullptr && op.type == xnn_operator_type_convolution_nhwc_f32 &&
         op.ukernel.type == xnn_microkernel_type_igemm &&
         op.ukernel.igemm.igemm_cases[0].function[XNN_UARCH_DEFAULT] == marker_of(*kernels);
}

void hook_winograd(xnn_runtime_t runtime) {
  for (std::size_t i = 0; i < runtime->num_ops; ++i) {
    xnn_operator_data& data = runtime->opdata[i];
    xnn_operator_t op = data.operator_objects[0];
    if (op != nullptr && is_winograd(*op)) {
      new (reinterpret_cast<char*>(&op->context) + kHookedOffset) Hooked{data.reshape, data.setup, {}};
      data.reshape = &reshape_winograd;
      data.setup = &setup_winograd;
    }
  }
}

std::string winograd_name(void (*kernel)()) {
  const WinogradKernels* kernels = own_kernels();
  return kernels != nullptr && kernel == reinterpret_cast<void (*)()>(kernels->input)
             ? std::string("slipway_f32_winograd_2x2_3x3__") + kernels->isa
             : std::string();
}

}  // namespace slipway::lean
