// The memory that a program plans: what of it is used, what methods share, and how it is allocated.

#include "check.h"
#include "lean/data/arenas.h"

using namespace slipway;
using namespace slipway::lean;

namespace {

constexpr std::uint64_t kUnplanned = UINT64_MAX;

// A float32 tensor of `count` elements at `offset` in the memory `arena`.
struct Planned {
  std::uint32_t arena = 1;
  std::uint64_t offset = 0;
  std::int32_t count = 1;
};

struct MethodRecipe {
  std::vector<std::int64_t> sizes;  // of the arenas, as the program plans them
  std::vector<Planned> tensors;
};

// A program with nothing in it but its plans.
class PlannedProgram {
 public:
  explicit PlannedProgram(const std::vector<MethodRecipe>& methods) {
    std::vector<flatbuffers::Offset<pte::ExecutionPlan>> plans;
    for (const MethodRecipe& method : methods) {
      std::vector<flatbuffers::Offset<pte::EValue>> values = {
          pte::CreateEValue(builder_, pte::KernelTypes::Int, pte::CreateInt(builder_, 7).Union())};
      for (const Planned& tensor : method.tensors) {
        const std::vector<std::int32_t> sizes = {tensor.count};
        const std::vector<std::uint8_t> order = {0};
        const auto allocation = tensor.offset == kUnplanned
                                    ? flatbuffers::Offset<pte::AllocationDetails>()
                                    : pte::CreateAllocationDetails(
                                          builder_, tensor.arena, static_cast<std::uint32_t>(tensor.offset),
                                          static_cast<std::uint32_t>(tensor.offset >> 32));
        const auto made = pte::CreateTensorDirect(builder_, pte::ScalarType::FLOAT, 0, &sizes, &order, false,
                                                  0, allocation);
        values.push_back(pte::CreateEValue(builder_, pte::KernelTypes::Tensor, made.Union()));
      }
      plans.push_back(pte::CreateExecutionPlanDirect(builder_, "forward", 0, &values, nullptr, nullptr,
                                                     nullptr, nullptr, nullptr, &method.sizes));
    }
    builder_.Finish(pte::CreateProgramDirect(builder_, 0, &plans));
  }

  const pte::Program& program() const {
    return *flatbuffers::GetRoot<pte::Program>(builder_.GetBufferPointer());
  }
  std::vector<std::size_t> used() const { return arenas_used(*program().execution_plan()->Get(0)); }

 private:
  flatbuffers::FlatBufferBuilder builder_;
};

bool is_aligned(const std::uint8_t* data) {
  return reinterpret_cast<std::uintptr_t>(data) % 64 == 0;
}

}  // namespace

TEST(arenas_are_used_up_to_the_end_of_their_last_tensor) {
  const PlannedProgram made({{{0, 1000, 500}, {{1, 64, 4}, {1, 0, 8}, {2, 16, 1}}}});
  CHECK(made.used() == std::vector<std::size_t>({0, 80, 20}));
}

TEST(arenas_hold_no_tensor_that_is_not_planned) {
  const PlannedProgram made({{{0, 1000}, {{1, kUnplanned, 100}, {1, 8, 1}}}});
  CHECK(made.used() == std::vector<std::size_t>({0, 12}));
}

TEST(arenas_of_more_than_four_gigabytes_have_offsets_of_two_words) {
  constexpr std::uint64_t kOffset = (std::uint64_t{3} << 32) + 16;
  const PlannedProgram made({{{0, std::int64_t{1} << 40}, {{1, kOffset, 2}}}});
  CHECK_EQUAL(made.used()[1], static_cast<std::size_t>(std::min<std::uint64_t>(kOffset + 8, SIZE_MAX)));
}

TEST(arenas_behind_the_first_are_shared_when_all_methods_plan_them_alike) {
  constexpr std::size_t kFar = std::size_t{2} << 20;
  const std::int64_t planned = std::int64_t{4} << 20;
  const PlannedProgram made({{{0, 64, planned}, {{2, 0, 2}}}, {{0, 128, planned}, {{2, kFar, 4}}}});
  SharedArenas shared(made.program());
  CHECK(!shared.has(0));
  CHECK(!shared.has(1));
  CHECK(shared.has(2));
  std::uint8_t* memory = shared.memory(2);
  CHECK(memory != nullptr);
  CHECK(shared.memory(2) == memory);
  CHECK(is_aligned(memory));
  // As long as the method needs that uses most of it.
  CHECK(std::all_of(memory, memory + kFar + 16, [](std::uint8_t byte) { return byte == 0; }));
}

TEST(arenas_that_methods_plan_differently_are_their_own) {
  const PlannedProgram sizes({{{0, 64, 256}, {}}, {{0, 64, 512}, {}}});
  CHECK(!SharedArenas(sizes.program()).has(2));
  CHECK(!SharedArenas(sizes.program()).has(1));  // planned alike, and for intermediate values
  const PlannedProgram lacking({{{0, 64, 256}, {}}, {{0, 64}, {}}});
  CHECK(!SharedArenas(lacking.program()).has(2));
  const PlannedProgram empty({{{0, 64, 0}, {}}, {{0, 64, 0}, {}}});
  CHECK(!SharedArenas(empty.program()).has(2));
}

TEST(blocks_are_zero_aligned_and_stay_apart) {
  Blocks blocks;
  std::vector<std::uint8_t*> made;
  const std::vector<std::size_t> sizes = {0, 1, 63, 4096, std::size_t{1} << 20, (std::size_t{1} << 20) + 1};
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    std::uint8_t* block = blocks.allocate(sizes[i]);
    CHECK(block != nullptr);
    CHECK(is_aligned(block));
    CHECK(std::all_of(block, block + sizes[i], [](std::uint8_t byte) { return byte == 0; }));
    std::fill(block, block + sizes[i], static_cast<std::uint8_t>(i + 1));
    made.push_back(block);
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    CHECK(std::all_of(made[i], made[i] + sizes[i], [&](std::uint8_t byte) { return byte == i + 1; }));
  }
}

TEST(blocks_beyond_all_memory_are_refused) {
  Blocks blocks;
  CHECK(blocks.allocate(SIZE_MAX) == nullptr);
  CHECK(blocks.allocate(SIZE_MAX - 8) == nullptr);
}
