// Details of what --etdump and --dump_intermediate have; tests/integration/test_engine_profiles.py reads
// whole ones with upstream's Inspector.

#include "check.h"
#include "lean/method/recorder.h"
#include "lean/xnnpack/xnn_delegate.h"

using namespace slipway;
using slipway::lean::Recorder;

TEST(the_inspector_finds_what_a_delegate_spent_where_its_call_ended) {
  Recorder recorder(false);
  recorder.begin(kExecuteBlock);
  recorder.add_delegate({{"A #1", 30}, {"B #1", 20}}, 4, 1000, 1100);
  recorder.add_kernel("custom::op.out", 5, 0);
  const auto& events = recorder.blocks().back().events;
  CHECK_EQUAL(events.size(), 5U);
  CHECK(events[0].delegated && events[0].start == 1050 && events[0].end == 1080);
  CHECK(events[1].delegated && events[1].start == 1080 && events[1].end == 1100);
  CHECK_EQUAL(events[2].name, kDelegateCall);
  CHECK_EQUAL(events[3].name, "native_call_custom::op.out");
  // Clocks of coarse steps: operators that seem to take longer than their call begin with it.
  recorder.add_delegate({{"A #1", 300}}, 4, 1000, 1100);
  CHECK_EQUAL(recorder.blocks().back().events[5].start, 1000U);
}

TEST(a_value_of_a_type_that_the_inspector_cannot_read_is_left_out) {
  Recorder recorder(true);
  recorder.begin(kExecuteBlock);
  Tensor tensor;
  tensor.dtype = DType::kUnknown;
  tensor.shape = {1};
  tensor.bytes = {1};
  recorder.add_value("aten::add.out", 0, -1, tensor);
  CHECK(recorder.blocks().back().values.empty());
  CHECK(recorder.values().empty());
}
