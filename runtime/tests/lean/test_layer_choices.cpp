// Which of a layer's candidates computes it.
#include <string>
#include <vector>

#include "check.h"
#include "lean/xnnpack/float_tiles.h"
#include "lean/xnnpack/layer_choices.h"
#include "lean/xnnpack/tile_choice.h"

using slipway::Code;
using slipway::KernelCandidate;
using slipway::KernelUse;
using namespace slipway::lean;

namespace {

const std::vector<KernelCandidate> kThree = {{"12x32", 1}, {"8x32", 1.1}, {"xnnpack"}};

}  // namespace

TEST("a layer is computed by what is wanted, or else by the engine's own choice") {
  LayerChoices choices({{"forward/0/3", "xnnpack"}}, true);
  choices.begin("forward/0");
  CHECK(choices.choose(2, kThree, 1) == 1);
  CHECK(choices.choose(3, kThree, 1) == 2);
  CHECK(choices.check().ok());
  KernelUse use;
  use.layer = "forward/0/3";
  choices.complete(&use);
  CHECK_EQUAL(use.choice, "xnnpack");
  CHECK_EQUAL(use.own_choice, "8x32");
  CHECK(use.candidates.size() == 3);
}

TEST("only layers that are named are asked about, unless all are listed") {
  LayerChoices some({{"forward/0/3", "xnnpack"}}, false);
  some.begin("forward/0");
  CHECK(some.asks(3));
  CHECK(!some.asks(2));
  some.begin("decode/0");
  CHECK(!some.asks(3));
  LayerChoices all({}, true);
  all.begin("forward/0");
  CHECK(all.asks(2));
}

TEST("a layer or a candidate that is not there is named") {
  LayerChoices missing({{"forward/1/3", "xnnpack"}}, false);
  CHECK(missing.check().code() == Code::kUsage);
  CHECK_CONTAINS(missing.check().message(), "forward/1/3");
  LayerChoices unknown({{"forward/0/3", "13x32"}}, false);
  unknown.begin("forward/0");
  CHECK(unknown.choose(3, kThree) == 0);
  CHECK(unknown.check().code() == Code::kUsage);
  CHECK_CONTAINS(unknown.check().message(), "13x32");
  CHECK_CONTAINS(unknown.check().fix(), "8x32");
}

TEST("a product's shapes are there once each, the best by the model first") {
  const TileSet* set = float_tiles();
  if (set == nullptr) {
    return;
  }
  const std::vector<TileShape> shapes = tile_shapes(*set, TileElement::kFloat, 100, 64, 32);
  CHECK(shapes.size() > 2);
  for (std::size_t i = 1; i < shapes.size(); ++i) {
    CHECK(cycles_of(*set, shapes[i - 1], 100, 64, 32) <= cycles_of(*set, shapes[i], 100, 64, 32));
    CHECK(shape_name(*set, shapes[i - 1]) != shape_name(*set, shapes[i]));
  }
  // Of tiles with more rows than there are, one is enough.
  for (const TileShape& shape : tile_shapes(*set, TileElement::kFloat, 1, 64, 32)) {
    CHECK(shape.rows == 1);
  }
}
