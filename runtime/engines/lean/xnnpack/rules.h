// What each kind of node asks of its values: types, parameters, and the shapes that follow from shapes.
// XNNPACK believes most of it.
#pragma once

#include <xnnpack.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "lean/data/data_store.h"
#include "lean/data/evalue.h"
#include "lean/xnnpack/payload.h"
#include "slipway/status.h"
#include "xnnpack_runtime_generated.h"

namespace slipway::lean {

// A type that values of a graph may have, in the exporter's numbers and in XNNPACK's, which differ.
struct XnnType {
  xnn::XNNDatatype exported;
  xnn_datatype type;
  unsigned bits;  // of one element
  const char* name;
  const char* in_kernels;  // as XNNPACK writes it in the names of its kernels
};
// nullptr for any other type.
const XnnType* find_type(xnn_datatype type);
// XNNPACK's type for the exporter's; invalid for any other.
xnn_datatype to_xnn(xnn::XNNDatatype datatype);
const char* name_of(xnn_datatype type);

// Sizes in the order in which they lie in memory.
struct Dims {
  std::size_t rank = 0;
  std::array<std::size_t, XNN_MAX_TENSOR_DIMS> size{};

  std::size_t operator[](std::size_t i) const { return size[i]; }
  std::size_t& operator[](std::size_t i) { return size[i]; }
  std::size_t last() const { return size[rank - 1]; }  // of rank 1 and more
};

bool operator==(const Dims& one, const Dims& other);
inline bool operator!=(const Dims& one, const Dims& other) {
  return !(one == other);
}

// "2x3"; "scalar" when there is no dimension.
std::string shape_text(const Dims& dims);

// No tensor has more bytes than this, and no single size is larger.
inline constexpr std::size_t kMostBytes = SIZE_MAX / 8;

// The product of the sizes from `first` up to `end`; false when it is more than kMostBytes.
bool count_between(const Dims& dims, std::size_t first, std::size_t end, std::size_t* count);
inline bool count_all(const Dims& dims, std::size_t* count) {
  return count_between(dims, 0, dims.rank, count);
}

// Bits of one element in memory; 0 for a type that no value of a graph may have.
std::size_t bits_of(xnn_datatype datatype);
// Bytes of a tensor: rows of 4-bit numbers begin at a byte. False when there are more than kMostBytes.
bool count_bytes(const Dims& dims, xnn_datatype datatype, std::size_t* bytes);

// A value of the graph, as it was exported.
struct GraphFact {
  std::uint32_t id = 0;  // the exporter's
  xnn_datatype type = xnn_datatype_invalid;
  Dims declared;
  bool constant = false;
  bool input = false;   // of the graph
  bool output = false;  // of the graph
  std::uint32_t external_id = 0;
  Bytes data;  // of a constant
  // Of a quantized one, as far as its type has them.
  float scale = 0;
  std::int32_t zero_point = 0;
  std::size_t channel_dim = 0;
  const float* scales = nullptr;                // of the channels
  const std::uint16_t* block_scales = nullptr;  // bfloat16, of the channels' blocks
  std::size_t block_size = 0;
  std::size_t nonbatch_dims = 0;
  // The input of 1x1 convolutions alone that is quantized while the graph runs. The exporter quantizes each
  // image by itself. Upstream's runtime (ExecuTorch 1.5) computes such a layer as a fully connected one: its
  // rows are the pixels, and each is quantized by itself. That is nearer to the float result, and the kernels
  // for rows serve it. So this engine does the same.
  bool by_pixels = false;
};

// What is wrong, in words; empty when nothing is.
using Fault = std::string;

// Leaves the function with what is wrong; goes on when nothing is.
#define SLIPWAY_RETURN_IF_FAULT(found) \
  do {                                 \
    Fault slipway_fault = (found);     \
    if (!slipway_fault.empty()) {      \
      return slipway_fault;            \
    }                                  \
  } while (false)

inline constexpr std::uint32_t kNoValue = UINT32_MAX;
inline constexpr std::size_t kMostInputs = 5;
inline constexpr std::size_t kMostOutputs = 2;

// The exporter's ids of a node's values. kNoValue among the inputs: a bias that there is not.
struct Operands {
  std::array<std::uint32_t, kMostInputs> inputs{};
  std::array<std::uint32_t, kMostOutputs> outputs{};
  std::size_t input_count = 0;
  std::size_t output_count = 0;
};

// A node, with its values in the order in which Operands has them, as indices into a list of facts.
struct GraphNode {
  const xnn::XNode* node = nullptr;
  std::size_t index = 0;
  Operands operands;
};

struct NodeCall;
struct NodeRule;

// A node in the middle of the graph: the shapes of its inputs are known, its rule gives those of its outputs.
class NodeCheck {
 public:
  NodeCheck(const GraphNode& node, const std::vector<GraphFact>& facts, std::vector<Dims>* shapes)
      : node_(node), facts_(facts), shapes_(*shapes) {}

  // The node's kind of types, the bounds of its result, and its own rule.
  Fault run(const NodeRule& rule);

  const xnn::XNode& node() const { return *node_.node; }
  bool has(std::size_t input) const { return node_.operands.inputs[input] != kNoValue; }
  std::size_t inputs() const { return node_.operands.input_count; }
  const GraphFact& input(std::size_t i) const { return facts_[node_.operands.inputs[i]]; }
  const GraphFact& output(std::size_t i = 0) const { return facts_[node_.operands.outputs[i]]; }
  const Dims& dims(std::size_t input) const { return shapes_[node_.operands.inputs[input]]; }

  // The shape of the result. A fault when it is not what the value was declared with, as far as that is
  // fixed.
  Fault give(const Dims& dims, std::size_t output = 0);
  // Bytes that XNNPACK takes besides, while the node runs.
  void take(std::size_t bytes) { scratch_ += bytes; }
  std::size_t scratch() const { return scratch_; }

  // What is wrong with the node is said of one of its values; `why` where its type and shape do not show it.
  Fault wrong_input(std::size_t i, const std::string& why = "") const;
  Fault wrong_output(std::size_t i = 0, const std::string& why = "") const;

 private:
  const GraphNode& node_;
  const std::vector<GraphFact>& facts_;
  std::vector<Dims>& shapes_;
  std::size_t scratch_ = 0;
};

// What is wrong with a node; gives its outputs their shapes.
using NodeCheckFunction = Fault(NodeCheck& check);

// The types that all inputs of a node and its first output have, one and the same. `moved`: its elements keep
// their bits, so they have to mean the same numbers. Without types: the node's rule says what goes together.
struct TypeSet {
  std::initializer_list<xnn_datatype> types = {};
  bool moved = false;
};

// A kind of node: where its values' ids are, its types, its rule, and the call of XNNPACK's that defines it.
struct NodeRule {
  xnn::XNodeUnion kind;
  Operands (*operands)(const xnn::XNode&);
  TypeSet types;
  NodeCheckFunction* check;
  xnn_status (*define)(const NodeCall&);
};

// nullptr for a kind that the schema does not have.
const NodeRule* rule_of(xnn::XNodeUnion kind);
// Whether it has weights that are packed, and may have a bias: a fully-connected layer or a convolution.
bool is_layer(xnn::XNodeUnion kind);

// The rules, by families; check_elements: one result for each element.
NodeCheckFunction check_elements, check_convert, check_binary, check_softmax;
NodeCheckFunction check_fully_connected, check_batch_matrix_multiply, check_attention;
NodeCheckFunction check_convolution, check_pooling, check_argmax_pooling, check_global_average;
NodeCheckFunction check_resize, check_transpose, check_slice, check_reshape, check_pad, check_concatenate;

struct Window {
  std::uint64_t kernel = 1;
  std::uint64_t stride = 1;
  std::uint64_t dilation = 1;
  std::uint64_t before = 0;  // padding
  std::uint64_t after = 0;

  bool sane() const;  // nothing that may not be 0 is, and no padding wraps around
  std::uint64_t reach() const { return (kernel - 1) * dilation + 1; }
};

// How many windows fit along `size`; false when none does. `same`: TensorFlow's padding, which makes them
// cover all.
bool windows_along(std::size_t size, const Window& window, bool same, std::size_t* count);
// The inverse, of a transposed convolution: what `size` windows cover.
bool covered_by(std::size_t size, const Window& window, std::uint64_t adjustment, std::size_t* count);

// A convolution's along the height and along the width.
Window window_down(const xnn::_XNNNodeConv& node);
Window window_across(const xnn::_XNNNodeConv& node);

// Whether a window is one pixel, and each pixel has one.
bool every_pixel(const Window& window);

bool is_one_of(xnn_datatype type, std::initializer_list<xnn_datatype> types);
// What a value has of whose elements numbers are computed, one by one.
inline constexpr auto kNumbers = {xnn_datatype_fp32,  xnn_datatype_fp16,   xnn_datatype_bf16,
                                  xnn_datatype_qint8, xnn_datatype_quint8, xnn_datatype_int32};

// A delegate's graph that is sound, and the shapes that it can compute with: XNNPACK believes both. It is
// cheap to ask again for the shapes that it has seen last.
class GraphCheck {
 public:
  // Checks all that does not depend on the shapes of a call: ids, types, quantization, parameters, constants'
  // sizes, the order of nodes; then that the declared shapes follow from one another, or are bounds of what
  // follows. The payload must outlive the check. kFile, or kMissingOperator for a type or kind of node that
  // this XNNPACK lacks.
  static Result<GraphCheck> read(const XnnPayload& payload, std::string what);

  // The arguments of a call, in the order of external ids, before anything is done with them: how many, their
  // types and ranks, and that the graph can compute with their shapes and has room for its results. kFile
  // when they cannot be this graph's; kExecution when their shapes do not go through it; kMemory when what it
  // needs for them is more than there is.
  Status accept(const std::vector<TensorView*>& arguments);

  // Whether the graph produces that argument.
  bool produces(std::size_t argument) const {
    return argument < externals_.size() && externals_[argument] != kNoValue &&
           facts_[externals_[argument]].output;
  }

  // The shape of an external value, as it follows from the arguments accepted last.
  const Dims& shape_of(std::uint32_t external_id) const { return shapes_[externals_[external_id]]; }

  // All values by the exporter's ids, and the shapes they have now; for tests.
  const std::vector<GraphFact>& facts() const { return facts_; }
  const std::vector<Dims>& shapes() const { return shapes_; }
  // In the order of the file; their operands are indices of facts().
  const std::vector<GraphNode>& nodes() const { return nodes_; }
  // How many inputs and outputs it says it has.
  std::uint32_t externals() const { return most_externals_; }
  // Bytes that intermediate values take at once, at the least, with these shapes.
  std::size_t peak() const { return peak_; }

 private:
  explicit GraphCheck(std::string what) : what_(std::move(what)) {}

  Status fault(const std::string& text) const;
  Status misfit(const GraphNode& node, const std::string& text) const;
  Status read_values(const XnnPayload& payload);
  Status read_nodes(const xnn::XNNGraph& graph);
  Status resolve(GraphNode* node) const;
  Status order(const GraphNode& node, std::vector<std::uint8_t>* known);
  void find_pixel_layers();
  Status compare_declared();
  Fault follow();
  Status take_input(const TensorView* view, std::uint32_t external_id);
  Status take_output(const TensorView* view, std::uint32_t external_id) const;

  std::string what_;
  std::uint32_t most_externals_ = 0;
  std::vector<GraphFact> facts_;
  std::vector<std::uint32_t> by_id_;      // indices of facts; kNoValue: none
  std::vector<std::uint32_t> externals_;  // the same, by external ids
  std::vector<GraphNode> nodes_;
  std::vector<std::size_t> last_use_;  // of each fact: a node's index; SIZE_MAX: it is no intermediate value
  std::vector<Dims> shapes_;
  // Which value is declared larger than it is, and so has to be dynamic: what is declared is then a bound.
  Fault loose_;
  std::size_t peak_ = 0;
  std::size_t had_ = 0;  // the largest peak that there was room for
  bool accepted_ = false;
};

// The program's element type for a type of the graph's.
DType dtype_of_value(xnn_datatype type);

// What the schema says of a value. `text`: what is wrong with it. False for a type that this XNNPACK lacks.
bool read_fact(const xnn::XValue& value, const XnnPayload& payload, GraphFact* fact, Fault* text);

}  // namespace slipway::lean
