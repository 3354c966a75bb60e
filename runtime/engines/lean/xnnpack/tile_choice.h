// The shape of the kernel that computes a product in float32: rows and columns that waste the least work.
#pragma once

#include <pthreadpool.h>
#include <xnnpack.h>

#include <cstddef>
#include <vector>

#include "lean/xnnpack/packed_weights.h"
#include "lean/xnnpack/tile_set.h"

struct xnn_node;

namespace slipway::lean {

enum class TileElement { kFloat, kHalf };

// Whether the set has that tile.
bool has_tile(const TileSet& set, TileElement element, std::size_t rows, std::size_t vectors);

struct TileShape {
  std::size_t rows = 0;
  std::size_t vectors = 0;
};

// Processor cycles that a product of these sizes takes, by what a core does in one: two multiplications with
// addition and two loads of a vector. Good enough to compare shapes.
double cycles_of(const TileSet& set, TileShape shape, std::size_t rows, std::size_t columns,
                 std::size_t depth);

// The shape for a product. Columns depend on the weights' sizes alone: methods that run them with other
// numbers of rows share the packed weights.
TileShape choose_tile(const TileSet& set, TileElement element, std::size_t rows, std::size_t columns,
                      std::size_t depth);

// While it is there, layers of the graph that XNNPACK makes are given our kernels where we have some. XNNPACK
// reads one table for each type of layer when it makes an operator, and copies what it needs: the table has
// our kernel while that operator is made. Other threads wait.
class TileChoice {
 public:
  // `threads` pack the weights; nullptr: the caller alone.
  TileChoice(xnn_subgraph_t subgraph, PackedWeights* weights, pthreadpool_t threads);
  ~TileChoice();
  TileChoice(const TileChoice&) = delete;
  TileChoice& operator=(const TileChoice&) = delete;

 private:
  xnn_subgraph_t subgraph_;
  std::vector<void (*)()> originals_;  // how each node's operator is made
};

}  // namespace slipway::lean
