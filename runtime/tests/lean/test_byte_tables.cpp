// Chains of element-by-element nodes between 8-bit values: looked up in a table, against XNNPACK's nodes one
// after the other, bit for bit.
#include <pthreadpool.h>
#include <xnnpack.h>
#include <xnnpack/operator.h>
#include <xnnpack/subgraph.h>

#include "check.h"
#include "lean/xnnpack/blocking.h"
#include "lean/xnnpack/byte_tables.h"

using namespace slipway::lean;

namespace {

struct Chain {
  xnn_datatype type = xnn_datatype_qint8;
  std::vector<xnn_unary_operator> between;  // in float32
  bool seen = false;                        // the last value in float32 is one of the graph's outputs
  std::size_t count = 300;
};

struct Outcome {
  std::vector<std::uint8_t> bytes;
  std::size_t operators = 0;
  std::size_t tables = 0;
};

Outcome run_chain(const Chain& chain, bool joined, pthreadpool_t threads) {
  xnn_subgraph_t made = nullptr;
  CHECK(xnn_create_subgraph(3, 0, &made) == xnn_status_success);
  const std::unique_ptr<xnn_subgraph, decltype(&xnn_delete_subgraph)> subgraph(made, xnn_delete_subgraph);
  const std::size_t dims[] = {chain.count};
  const std::int32_t zero = chain.type == xnn_datatype_qint8 ? -20 : 110;
  std::uint32_t first = 0;
  std::uint32_t last = 0;
  CHECK(xnn_define_quantized_tensor_value(made, chain.type, zero, 0.05F, 1, dims, nullptr, 0,
                                          XNN_VALUE_FLAG_EXTERNAL_INPUT, &first) == xnn_status_success);
  CHECK(xnn_define_quantized_tensor_value(made, chain.type, zero + 5, 0.04F, 1, dims, nullptr, 1,
                                          XNN_VALUE_FLAG_EXTERNAL_OUTPUT, &last) == xnn_status_success);
  std::uint32_t at = first;
  for (std::size_t i = 0; i <= chain.between.size(); ++i) {
    const bool outside = chain.seen && i == chain.between.size();
    std::uint32_t next = 0;
    CHECK(xnn_define_tensor_value(made, xnn_datatype_fp32, 1, dims, nullptr,
                                  outside ? 2 : XNN_INVALID_VALUE_ID,
                                  outside ? XNN_VALUE_FLAG_EXTERNAL_OUTPUT : 0, &next) == xnn_status_success);
    xnn_unary_params params = {};
    params.clamp.min = -1.0F;
    params.clamp.max = 2.0F;
    CHECK(xnn_define_unary(made, i == 0 ? xnn_unary_convert : chain.between[i - 1], &params, at, next, 0) ==
          xnn_status_success);
    at = next;
  }
  CHECK(xnn_define_unary(made, xnn_unary_convert, nullptr, at, last, 0) == xnn_status_success);

  xnn_runtime_t started = nullptr;
  if (joined) {
    const ByteTables tables(made);
    CHECK(xnn_create_runtime_v2(made, threads, 0, &started) == xnn_status_success);
    CHECK(tables.install(started) == xnn_status_success);
  } else {
    CHECK(xnn_create_runtime_v2(made, threads, 0, &started) == xnn_status_success);
  }
  const std::unique_ptr<xnn_runtime, decltype(&xnn_delete_runtime)> runtime(started, xnn_delete_runtime);
  Outcome outcome;
  for (std::size_t i = 0; i < started->num_ops; ++i) {
    const xnn_operator* op = started->opdata[i].operator_objects[0];
    outcome.operators += op != nullptr ? 1 : 0;
    outcome.tables += op != nullptr && op->lookup_table != nullptr ? 1 : 0;
  }
  std::vector<std::uint8_t> given(chain.count + XNN_EXTRA_BYTES);
  for (std::size_t i = 0; i < given.size(); ++i) {
    given[i] = static_cast<std::uint8_t>(i);
  }
  outcome.bytes.resize(chain.count);
  std::vector<float> between(chain.count + XNN_EXTRA_BYTES);
  const xnn_external_value values[] = {{0, given.data()}, {1, outcome.bytes.data()}, {2, between.data()}};
  CHECK(xnn_reshape_runtime(started) == xnn_status_success);
  set_blocks(started, threads == nullptr ? 1 : pthreadpool_get_threads_count(threads));
  CHECK(xnn_setup_runtime_v2(started, chain.seen ? 3 : 2, values) == xnn_status_success);
  CHECK(xnn_invoke_runtime(started) == xnn_status_success);
  return outcome;
}

void check_chain(const Chain& chain, bool becomes_table = true) {
  const std::unique_ptr<pthreadpool, decltype(&pthreadpool_destroy)> threads(pthreadpool_create(3),
                                                                             pthreadpool_destroy);
  const Outcome plain = run_chain(chain, false, nullptr);
  CHECK(plain.operators == chain.between.size() + 2);
  for (pthreadpool_t pool : {static_cast<pthreadpool_t>(nullptr), threads.get()}) {
    const Outcome joined = run_chain(chain, true, pool);
    CHECK(joined.bytes == plain.bytes);
    CHECK(joined.tables == (becomes_table ? 1U : 0U));
    CHECK(joined.operators == (becomes_table ? 1U : plain.operators));
  }
}

}  // namespace

TEST("a chain between 8-bit values is one table, with the bits of its nodes") {
  CHECK(xnn_initialize(nullptr) == xnn_status_success);
  for (const xnn_datatype type : {xnn_datatype_qint8, xnn_datatype_quint8}) {
    check_chain({type, {xnn_unary_hardswish}});
    check_chain({type, {xnn_unary_gelu}});
    check_chain({type, {xnn_unary_sigmoid, xnn_unary_clamp}});
    check_chain({type, {}});
  }
  check_chain({xnn_datatype_qint8, {xnn_unary_hardswish}, false, 1});
  check_chain({xnn_datatype_qint8, {xnn_unary_hardswish}, false, 200000});  // shared among threads
}

TEST("a chain whose values are seen outside stays as it is") {
  CHECK(xnn_initialize(nullptr) == xnn_status_success);
  check_chain({xnn_datatype_qint8, {xnn_unary_hardswish}, true}, false);
}
