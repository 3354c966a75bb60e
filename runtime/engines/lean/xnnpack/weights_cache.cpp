#include "lean/xnnpack/packed_weights.h"

#include <xnnpack/common.h>
#include <xnnpack/hardware-config.h>
#include <xnnpack/microkernel-type.h>
#include <xnnpack/operator-type.h>
#include <xnnpack/operator.h>
#include <xnnpack/subgraph.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "lean/xnnpack/winograd.h"

namespace slipway::lean {
namespace {

// Where a file system changes what is known of a file by itself, writing again does not help.
constexpr std::uint64_t kMostRewritten = 3;

}  // namespace

const WeightsFile* WeightsCache::open(const DataStore& store, const std::string& model_path,
                                      const std::string& data_path, bool kleidiai) {
  owner_ = {processor_sum(kleidiai), {}};
  file_.reset();
  const std::string own = own_path();
  Result<MappedFile> program = MappedFile::open(own);
  if (!program.ok()) {
    give_up("this system does not tell where the runner's own file is");
    return nullptr;
  }
  program_ = std::move(program.value());
  owner_.files.push_back({own, &*program_});
  const std::vector<const MappedFile*> files = store.files();
  for (std::size_t i = 0; i < files.size(); ++i) {
    owner_.files.push_back({i == 0 ? model_path : data_path, files[i]});
  }
  if (doubted_) {
    return nullptr;
  }
  Result<WeightsFile> file = WeightsFile::open(info_.path, owner_);
  if (!file.ok()) {
    if (file.status().code() == Code::kUsage) {
      give_up(info_.path + ": " + file.status().message());
    } else {
      info_.why = file.status().message();
    }
    return nullptr;
  }
  file_ = std::move(file.value());
  return &*file_;
}

void WeightsCache::doubt() {
  doubted_ = true;
  info_.why = "its weights were not packed as the layers read them";
}

void WeightsCache::give_up(const std::string& why) {
  info_.state = "none";
  info_.why = why;
  info_.bytes = 0;
}

void WeightsCache::keep(const PackedWeights& weights, double load_ms) {
  if (info_.state == "none") {
    return;
  }
  info_.found = weights.found();
  bool news = false;
  std::vector<PackedBlock> blocks = weights.to_keep(&news);
  const bool stale = file_ && !file_->as_written() && file_->rewritten() < kMostRewritten;
  WeightsNote note{0, file_ ? std::max(file_->packing_load_ms(), load_ms) : load_ms};
  if (file_ && !news) {
    note.packing_load_ms = info_.packing_load_ms = file_->packing_load_ms();
  }
  if (file_ && !news && !stale) {
    info_.state = "used";
    info_.bytes = file_->size();
    return;
  }
  if (file_ && !news) {
    info_.why = "it was copied or moved, or the program was";
    note.rewritten = file_->rewritten() + 1;
    blocks = file_->blocks();
  } else if (file_) {
    info_.why = "it lacked some of the layers";
  }
  const Status written = write_weights(info_.path, owner_, blocks, note);
  if (!written.ok()) {
    if (file_ && !news) {
      info_.state = "used";
      info_.bytes = file_->size();
    } else {
      give_up(written.message());
    }
    return;
  }
  info_.state = file_ ? "extended" : "made";
  const Result<MappedFile> made = MappedFile::open(info_.path);
  info_.bytes = made.ok() ? made.value().size() : 0;
}

namespace {

using Code0 = void (*)();

template <typename Kernel>
Code0 code_of(Kernel* kernel) {
  return reinterpret_cast<Code0>(kernel);
}

// The kernel for the fewest rows: how many a kernel computes at once is nothing to the weights, and methods
// that share them have different numbers.
template <typename Cases>
std::int64_t least_kernel(const Cases& cases, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    if (cases[i].function[XNN_UARCH_DEFAULT] != nullptr) {
      return distance_of(code_of(cases[i].function[XNN_UARCH_DEFAULT]));
    }
  }
  return 0;
}

std::size_t padded(std::size_t number, std::size_t unit) {
  return (number + unit - 1) / unit * unit;
}

// Bytes of an element of the weights, and of what a convolution's output channel has besides.
struct Elements {
  std::size_t weight = 0;
  std::size_t channel = 0;
};

Elements elements_of(xnn_operator_type type) {
  switch (type) {
    case xnn_operator_type_convolution_nhwc_f32:
      return {4, 4};
    case xnn_operator_type_convolution_nhwc_f16:
      return {2, 2};
    case xnn_operator_type_convolution_nhwc_qu8:
      return {1, 4};
    case xnn_operator_type_convolution_nhwc_qs8:
    case xnn_operator_type_convolution_nhwc_qc8:
      return {1, 4 + 4};
    case xnn_operator_type_convolution_nhwc_qd8_f16_qc8w:
    case xnn_operator_type_convolution_nhwc_qd8_f32_qc8w:
      return {1, 4 + 8};
    default:
      return {};
  }
}

// Operators that look their weights up before they pack them.
LayerLayout layout_of(const xnn_operator& op) {
  LayerLayout found;
  found.index = op.packed_weights.offset;
  PackedLayout& layout = found.layout;
  layout.kind = static_cast<std::uint32_t>(op.type);
  if (op.ukernel.type == xnn_microkernel_type_gemm && op.ukernel.gemm.mr != 0) {
    const xnn_ukernel_gemm& gemm = op.ukernel.gemm;
    layout.kernel = least_kernel(gemm.gemm_cases, gemm.mr);
    layout.nr = gemm.nr;
    layout.kr = gemm.kr;
    layout.sr = gemm.sr;
  } else if (op.ukernel.type == xnn_microkernel_type_igemm && op.ukernel.igemm.mr != 0) {
    const xnn_ukernel_igemm& igemm = op.ukernel.igemm;
    layout.kernel = least_kernel(igemm.igemm_cases, igemm.mr);
    layout.nr = igemm.nr;
    layout.kr = igemm.kr;
    layout.sr = igemm.sr;
  }
  if (layout.nr == 0 || layout.kr == 0 || layout.sr == 0) {
    return found;
  }
  if (is_winograd(op)) {
    const std::size_t elements =
        winograd_packed_elements(op.group_input_channels, op.group_output_channels, layout.nr);
    found.size = padded(elements * sizeof(float), XNN_ALLOCATION_ALIGNMENT);
    return found;
  }
  const std::size_t channels = padded(op.group_output_channels, layout.nr);
  const Elements elements = elements_of(op.type);
  std::size_t each = 0;
  if (elements.weight != 0) {
    const std::size_t depth = padded(op.group_input_channels, std::size_t{layout.kr} * layout.sr);
    each = (depth * op.kernel_height * op.kernel_width * elements.weight + elements.channel) * op.groups;
  } else if (op.ukernel.type == xnn_microkernel_type_gemm && op.groups == 0) {
    each = op.weights_stride;  // fully connected layers keep it
  }
  found.size = padded(channels * each, XNN_ALLOCATION_ALIGNMENT);
  return found;
}

}  // namespace

std::int64_t distance_of(void (*function)()) {
  return static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(function)) -
         static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(&xnn_initialize));
}

std::vector<LayerLayout> layouts_of(xnn_runtime_t runtime, xnn_weights_cache_t provider) {
  std::vector<LayerLayout> found;
  for (std::size_t i = 0; i < runtime->num_ops; ++i) {
    for (const xnn_operator_t op : runtime->opdata[i].operator_objects) {
      if (op != nullptr && op->weights_cache == provider) {
        found.push_back(layout_of(*op));
      }
    }
  }
  return found;
}

Checksum processor_sum(bool kleidiai) {
  std::string text = SLIPWAY_VERSION;
  const xnn_hardware_config* hardware = xnn_init_hardware_config();
  if (hardware != nullptr) {
    text.append(reinterpret_cast<const char*>(hardware), sizeof(*hardware));
  }
  text += kleidiai ? "" : "without KleidiAI";
  return checksum_of(text.data(), text.size());
}

}  // namespace slipway::lean
