#include "lean/xnnpack/kernel_choices.h"

#include <xnnpack/common.h>
#include <xnnpack/config.h>
#include <xnnpack/hardware-config.h>
#include <xnnpack/microkernel-type.h>
#include <xnnpack/operator-type.h>
#include <xnnpack/operator.h>
#include <xnnpack/subgraph.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <string_view>

#include "base/text.h"
#include "lean/xnnpack/own_kernels.h"
#include "lean/xnnpack/xnn_delegate.h"
#include "selection.h"

#if XNN_ARCH_ARM
#include <xnnpack/microparams.h>

#include <cstddef>

// In XNNPACK's library; the header that declares it is not among those that can be had.
extern "C" void xnn_f32_vgelu_ukernel__scalar_rational_12_10_div_u1(std::size_t batch, const float* input,
                                                                    float* output,
                                                                    const xnn_f32_default_params* params);
#endif

// The names of all kernels in the library, made by the build from the library's index.
#define KERNEL(symbol, arms) extern "C" void symbol();
#include "kernel_names.inc"
#undef KERNEL

namespace slipway::lean {
namespace {

// What XNNPACK's config functions return as constant are variables. None where a selective build left the
// operator out.
template <typename Kernel>
void put(const xnn_unary_elementwise_config* table, Kernel kernel) {
  if (table != nullptr) {
    const_cast<xnn_unary_elementwise_config*>(table)->ukernel =
        reinterpret_cast<xnn_vunary_ukernel_fn>(kernel);
  }
}

template <typename Kernel>
[[maybe_unused]] void put(const xnn_binary_elementwise_config* table, Kernel kernel) {
  if (table != nullptr) {
    const_cast<xnn_binary_elementwise_config*>(table)->op_ukernel =
        reinterpret_cast<xnn_vbinary_ukernel_fn>(kernel);
  }
}

#if XNN_ARCH_ARM64 || XNN_ARCH_X86_64
// Nobody calls it where a selective build leaves halves out.
[[maybe_unused]] void correct_half_functions() {
  const HalfFunctions& ours = kHalfFunctions;
  put(xnn_init_f16_hswish_config(), ours.hardswish);
  put(xnn_init_f16_rsqrt_config(), ours.reciprocal_root);
  put(xnn_init_f16_sigmoid_config(), ours.sigmoid);
  put(xnn_init_f16_sqrt_config(), ours.square_root);
  put(xnn_init_f16_tanh_config(), ours.tanh);
}
#endif

}  // namespace

#if XNN_ARCH_ARM64 || XNN_ARCH_X86_64
bool computes_halves() {
  const xnn_hardware_config* hardware = xnn_init_hardware_config();
#if XNN_ARCH_ARM64
  return hardware != nullptr && hardware->use_arm_neon_fp16_arith;
#else
  return hardware != nullptr && hardware->use_x86_avx2 && hardware->use_x86_fma3 && hardware->use_x86_f16c;
#endif
}
#endif

void correct_kernel_choices() {
#if XNN_ARCH_ARM
  const xnn_hardware_config* hardware = xnn_init_hardware_config();
  if (hardware == nullptr || hardware->use_arm_neon) {
    return;
  }
  // init_f32_gelu_config in its unary-elementwise-config.c falls back to the kernel for NEON where there is
  // no NEON; every other operator falls back to a scalar one.
  put(xnn_init_f32_gelu_config(), &xnn_f32_vgelu_ukernel__scalar_rational_12_10_div_u1);
#elif XNN_ARCH_ARM64 || XNN_ARCH_X86_64
  if constexpr (has_layers("xnnpack::f16")) {
    if (computes_halves()) {
      correct_half_functions();
    }
  }
#endif
#if XNN_ARCH_X86_64
  if constexpr (has_layers("xnnpack::qs8")) {
    if (const auto* cpu = xnn_init_hardware_config(); cpu != nullptr && cpu->use_x86_avx512vnni) {
      put(xnn_init_qs8_vadd_config(), &avx512vnni::byte_sums_on_avx512vnni);
      put(xnn_init_qs8_vmul_config(), &avx512vnni::byte_products_on_avx512vnni);
    }
  }
#endif
}

Changed<xnn_gemm_config> plain_rows() {
  auto packed = change(xnn_init_pf32_gemm_config());
  if (packed != nullptr) {
    // Without this function, XNNPACK packs no rows for KleidiAI's kernel of float32.
    packed->init.f32 = nullptr;
  }
  return packed;
}

void forget_kleidiai_kernels() {
  static_cast<void>(plain_rows().release());  // for good
  // A table without its first kernel counts as none.
  for (const xnn_gemm_config* table :
       {xnn_init_qp8_f32_qc4w_gemm_config(), xnn_init_qp8_f32_qb4w_gemm_config()}) {
    if (table != nullptr) {
      const_cast<xnn_gemm_config*>(table)->minmax = {};
    }
  }
}

namespace {

// Of a checked graph's type, as XNNPACK writes it in the names of its kernels.
std::string short_name(xnn_datatype type) {
  return find_type(type)->in_kernels;
}

// "f32", "qs8", "qd8_f32_qc8w", "f32_qc4w": with the output's type where the input's does not tell it.
std::string layer_name(xnn_datatype input, xnn_datatype weights, xnn_datatype output) {
  if (input == xnn_datatype_qdint8) {
    return short_name(input) + "_" + short_name(output) + "_" + short_name(weights);
  }
  const bool same = input == weights || (input == xnn_datatype_qint8 && weights == xnn_datatype_qcint8) ||
                    // Weights of float32 are converted when they are packed.
                    (input == xnn_datatype_fp16 && weights == xnn_datatype_fp32);
  return same ? short_name(input) : short_name(input) + "_" + short_name(weights);
}

}  // namespace

std::vector<std::string> kernel_types(const GraphCheck& check) {
  std::set<std::string> found;
  const std::vector<GraphFact>& facts = check.facts();
  for (const GraphNode& node : check.nodes()) {
    const Operands& operands = node.operands;
    const auto input = [&](std::size_t i) { return facts[operands.inputs[i]].type; };
    const xnn::XNodeUnion kind = node.node->xnode_union_type();
    const bool layer = is_layer(kind) || kind == xnn::XNodeUnion::XNNBatchMatrixMultiply;
    if (layer) {
      found.insert("xnnpack::" + layer_name(input(0), input(1), facts[operands.outputs[0]].type) + "_layers");
    }
    for (std::size_t i = 0; i < operands.input_count; ++i) {
      // Weights and a bias are packed, not computed with.
      if (operands.inputs[i] != kNoValue && !(layer && i >= 1)) {
        found.insert("xnnpack::" + short_name(input(i)));
      }
    }
    for (std::size_t i = 0; i < operands.output_count; ++i) {
      found.insert("xnnpack::" + short_name(facts[operands.outputs[i]].type));
    }
  }
  return {found.begin(), found.end()};
}

Result<std::vector<std::string>> kernel_types(const pte::ExecutionPlan& plan, const DataStore& store) {
  std::set<std::string> found;
  for (std::size_t i = 0; plan.delegates() != nullptr && i < plan.delegates()->size(); ++i) {
    const pte::BackendDelegate& stored = *plan.delegates()->Get(static_cast<flatbuffers::uoffset_t>(i));
    if (stored.id()->str() != kXnnpackBackend) {
      continue;
    }
    const std::string what = "Delegate " + std::to_string(i) + " of method " + plan.name()->str();
    SLIPWAY_TRY(const XnnPayload payload, XnnPayload::read(store.delegate(*stored.processed()), store, what));
    SLIPWAY_TRY(const GraphCheck check, GraphCheck::read(payload, what));
    const std::vector<std::string> types = kernel_types(check);
    found.insert(types.begin(), types.end());
  }
  return std::vector<std::string>(found.begin(), found.end());
}

Status check_linked(const std::vector<std::string>& types, const std::string& what) {
  const std::vector<std::string> linked = linked_kernel_types();
  std::vector<std::string> missing;
  std::set_difference(types.begin(), types.end(), linked.begin(), linked.end(), std::back_inserter(missing));
  if (linked.empty() || missing.empty()) {
    return {};
  }
  return {Code::kMissingOperator,
          what + " needs kernels that this runner does not have: " + joined(missing) + ".", kRebuild,
          missing};
}

std::vector<std::string> linked_kernel_types() {
  std::vector<std::string> found;
  for (const std::string_view name : kSelectedTypes) {
    if (!name.empty()) {
      found.emplace_back(name);
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

namespace {

using Function = void (*)();

constexpr Function kKernels[] = {
#define KERNEL(symbol, arms) symbol,
#include "kernel_names.inc"
#undef KERNEL
};

// For each of them its name, and the kernel of KleidiAI's that it calls: empty for XNNPACK's own. One text,
// for the loader would have to write each pointer to one of its own.
constexpr char kTexts[] =
#define KERNEL(symbol, arms) #symbol "\0" arms "\0"
#include "kernel_names.inc"
#undef KERNEL
    ;

struct Named {
  std::string_view name;
  std::string_view arms;
};

// An empty name for what is not in the table.
Named find(Function function) {
  const char* text = kTexts;
  for (const Function kernel : kKernels) {
    const std::string_view name = text;
    const std::string_view arms = text + name.size() + 1;
    if (kernel == function) {
      return {name, arms};
    }
    text = arms.data() + arms.size() + 1;
  }
  return {};
}

// What follows the two underscores says what the kernel wants of the processor:
// "asm_aarch64_neonfma_cortex_a75" neonfma, "avx512vnni_prfm" avx512vnni.
std::string feature_of(std::string_view name) {
  const std::size_t at = name.rfind("__");
  std::string_view rest = at == std::string_view::npos ? std::string_view() : name.substr(at + 2);
  for (const std::string_view skipped : {"asm_", "aarch64_", "aarch32_", "amd64_"}) {
    if (rest.substr(0, skipped.size()) == skipped) {
      rest.remove_prefix(skipped.size());
    }
  }
  return std::string(rest.substr(0, rest.find('_')));
}

}  // namespace

void (*kernel_of(const xnn_operator& op))() {
  const auto as_function = [](auto* kernel) { return reinterpret_cast<Function>(kernel); };
  switch (op.ukernel.type) {
    case xnn_microkernel_type_gemm:
      return as_function(op.context.gemm.gemm.gemm.ukernel.function[XNN_UARCH_DEFAULT]);
    case xnn_microkernel_type_igemm:
      return as_function(op.context.igemm.igemm.ukernel.function[XNN_UARCH_DEFAULT]);
    case xnn_microkernel_type_dwconv:
      return as_function(op.ukernel.dwconv.unipass_fn);
    default:
      return nullptr;
  }
}

std::vector<KernelUse> kernels_of(xnn_runtime_t runtime) {
  std::vector<KernelUse> found;
  for (std::size_t i = 0; i < runtime->num_ops; ++i) {
    const xnn_operator_t op = runtime->opdata[i].operator_objects[0];
    if (op == nullptr) {
      continue;
    }
    const std::string ours = tile_name(kernel_of(*op));
    const auto [name, arms] = ours.empty() ? find(kernel_of(*op)) : Named{ours, ""};
    // As XNNPACK's profile names it.
    std::string kind = xnn_operator_type_to_string(op->type);
    if (op->ukernel.type != xnn_microkernel_type_default) {
      kind += std::string(" ") + xnn_microkernel_type_to_string(op->ukernel.type);
    }
    found.push_back({kind, std::string(arms.empty() ? name : arms),
                     !ours.empty()  ? "Slipway"
                     : arms.empty() ? "XNNPACK"
                                    : "KleidiAI",
                     feature_of(name)});
  }
  return found;
}

}  // namespace slipway::lean
