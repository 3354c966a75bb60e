#include "check.h"
#include "lean/method/delegate.h"

using namespace slipway;
using namespace slipway::lean;

namespace {

using InstructionOffset = flatbuffers::Offset<pte::Instruction>;

// How many constants a delegate is given for good whose call, delegate(value 0), comes behind `before`.
template <typename Before>
std::size_t constants_behind(Before before) {
  flatbuffers::FlatBufferBuilder builder;
  builder.ForceDefaults(true);
  std::vector<InstructionOffset> instructions = before(builder);
  const auto arguments = builder.CreateVector(std::vector<std::int32_t>{0});
  instructions.push_back(pte::CreateInstruction(builder, pte::InstructionArguments::DelegateCall,
                                                pte::CreateDelegateCall(builder, 0, arguments).Union()));
  const auto chain = pte::CreateChain(builder, 0, 0, builder.CreateVector(instructions));
  const auto chains = builder.CreateVector(&chain, 1);
  pte::ExecutionPlanBuilder plan(builder);
  plan.add_chains(chains);
  builder.Finish(plan.Finish());
  std::uint32_t number = 0;
  TensorView constant;
  constant.dtype = DType::kFloat32;
  constant.constant = true;
  constant.data = reinterpret_cast<std::uint8_t*>(&number);
  constant.capacity = sizeof(number);
  const std::vector<EValue> values{constant, TensorView()};
  const auto* made = flatbuffers::GetRoot<pte::ExecutionPlan>(builder.GetBufferPointer());
  return constants_given(*made, values, 0).size();
}

}  // namespace

TEST(a_value_that_another_tensor_is_moved_to_is_no_constant) {
  const auto moved = [](flatbuffers::FlatBufferBuilder& builder) {
    return std::vector<InstructionOffset>{pte::CreateInstruction(builder, pte::InstructionArguments::MoveCall,
                                                                 pte::CreateMoveCall(builder, 1, 0).Union())};
  };
  CHECK_EQUAL(constants_behind(moved), std::size_t{0});
}

TEST(a_value_that_a_kernel_writes_is_no_constant) {
  const auto viewed = [](flatbuffers::FlatBufferBuilder& builder) {
    const auto arguments = builder.CreateVector(std::vector<std::int32_t>{1, 1, 0});
    return std::vector<InstructionOffset>{
        pte::CreateInstruction(builder, pte::InstructionArguments::KernelCall,
                               pte::CreateKernelCall(builder, 0, arguments).Union())};
  };
  CHECK_EQUAL(constants_behind(viewed), std::size_t{0});
}
