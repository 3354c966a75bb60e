#include <xnnpack/microkernel-type.h>
#include <xnnpack/operator-type.h>
#include <xnnpack/operator.h>
#include <xnnpack/subgraph.h>

#include <map>
#include <string_view>

#include "lean/xnnpack/kernel_choices.h"
#include "lean/xnnpack/own_kernels.h"

// The names of all kernels in the library, made by the build from the library's index.
#define KERNEL(symbol, arms) extern "C" void symbol();
#include "kernel_names.inc"
#undef KERNEL

namespace slipway::lean {
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

template <typename Kernel>
Function as_function(Kernel* kernel) {
  return reinterpret_cast<Function>(kernel);
}

// Of a processor with several kinds of cores, the kernel of the first.
Function kernel_of(const xnn_operator& op) {
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

}  // namespace

std::vector<KernelUse> kernels_of(xnn_runtime_t runtime) {
  std::vector<KernelUse> found;
  std::map<std::string, unsigned> of_kind;
  for (std::size_t i = 0; i < runtime->num_ops; ++i) {
    const xnn_operator_t op = runtime->opdata[i].operator_objects[0];
    if (op == nullptr) {
      continue;
    }
    // As XNNPACK's profile names it.
    std::string kind = xnn_operator_type_to_string(op->type);
    if (op->ukernel.type != xnn_microkernel_type_default) {
      kind += std::string(" ") + xnn_microkernel_type_to_string(op->ukernel.type);
    }
    const unsigned number = ++of_kind[kind];
    const std::string ours = tile_name(kernel_of(*op));
    if (!ours.empty()) {
      found.push_back({kind + " #" + std::to_string(number), ours, "Slipway", feature_of(ours)});
      continue;
    }
    const auto [name, arms] = find(kernel_of(*op));
    if (name.empty()) {
      continue;
    }
    found.push_back({kind + " #" + std::to_string(number), std::string(arms.empty() ? name : arms),
                     arms.empty() ? "XNNPACK" : "KleidiAI", feature_of(name)});
  }
  return found;
}

}  // namespace slipway::lean
