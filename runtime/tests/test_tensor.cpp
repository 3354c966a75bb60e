#include "check.h"
#include "runner/report/report.h"
#include "slipway/tensor.h"

namespace {

using namespace slipway;

TEST(count_of_elements) {
  std::size_t count = 99;
  CHECK(count_elements({2, 3, 4}, 4, &count));
  CHECK_EQUAL(count, std::size_t{24});
  CHECK(count_elements({}, 8, &count));
  CHECK_EQUAL(count, std::size_t{1});
  CHECK(count_elements({5, 0, 7}, 4, &count));
  CHECK_EQUAL(count, std::size_t{0});
}

TEST(count_refuses_what_overflows) {
  std::size_t count = 0;
  CHECK(!count_elements({-1}, 4, &count));
  CHECK(!count_elements({INT32_MAX, INT32_MAX, INT32_MAX}, 1, &count));
  CHECK(!count_elements({std::int64_t{1} << 61}, 4, &count));
}

TEST(memory_order_there_and_back) {
  // 1x2x2x3 in channels-last: c is innermost.
  const Shape shape{1, 2, 2, 3};
  const std::vector<std::uint8_t> order{0, 2, 3, 1};
  std::vector<std::uint8_t> row_major(12);
  for (std::size_t i = 0; i < row_major.size(); ++i) {
    row_major[i] = static_cast<std::uint8_t>(i);
  }
  const std::vector<std::uint8_t> memory = to_memory_order(row_major, shape, order, 1);
  CHECK((memory == std::vector<std::uint8_t>{0, 6, 1, 7, 2, 8, 3, 9, 4, 10, 5, 11}));
  CHECK(to_row_major(memory, shape, order, 1) == row_major);
}

TEST(memory_order_of_wide_elements_and_empty_tensors) {
  const std::vector<std::uint8_t> bytes{1, 2, 3, 4, 5, 6, 7, 8};
  CHECK((to_memory_order(bytes, {2, 2}, {1, 0}, 2) == std::vector<std::uint8_t>{1, 2, 5, 6, 3, 4, 7, 8}));
  CHECK(to_memory_order({}, {2, 0}, {1, 0}, 4).empty());
  CHECK((to_row_major({9}, {}, {}, 1) == std::vector<std::uint8_t>{9}));
}

TEST(values_as_text) {
  const Tensor halves{DType::kFloat16, {5}, {0x00, 0xBC, 0x01, 0x00, 0x00, 0x7C, 0x00, 0x42, 0x00, 0x80}};
  CHECK_EQUAL(values_text(halves, 9), "[-1, 5.9605e-08, inf, 3, -0]");
  const Tensor bf16{DType::kBFloat16, {2}, {0x40, 0xC0, 0x80, 0x3F}};
  CHECK_EQUAL(values_text(bf16, 9), "[-3, 1]");
  CHECK_EQUAL(values_text(ones(DType::kInt32, {5}, 5), 2), "[1, 1, ... 5 in all]");
  CHECK_EQUAL(values_text(ones(DType::kComplex64, {2}, 2), 9), "[1+0j, 1+0j]");
  CHECK_EQUAL(values_text(ones(DType::kComplex128, {1}, 1), 9), "[1+0j]");
}

}  // namespace
