#include "program_builder.h"

#include <cstring>

namespace {

using namespace slipway;

constexpr std::size_t kHeader = 32;
constexpr std::size_t kInsertAt = 8;  // behind root offset and identifier
constexpr std::size_t kAlignment = 16;

flatbuffers::Offset<pte::EValue> tensor(flatbuffers::FlatBufferBuilder& builder, const ProgramRecipe& recipe,
                                        std::uint32_t constant, bool planned) {
  const auto sizes = builder.CreateVector(std::vector<std::int32_t>{2, 3});
  const auto order = builder.CreateVector(recipe.dim_order);
  const auto allocation = planned ? pte::CreateAllocationDetails(builder, 1, 0, 0) : 0;
  const auto value = pte::CreateTensor(builder, static_cast<pte::ScalarType>(recipe.element_type), 0, sizes,
                                       order, false, constant, allocation);
  return pte::CreateEValue(builder, pte::KernelTypes::Tensor, value.Union());
}

}  // namespace

void put_number(std::vector<std::uint8_t>* file, std::size_t at, std::uint64_t value, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) {
    (*file)[at + i] = static_cast<std::uint8_t>(value >> (8 * i));
  }
}

std::vector<std::uint8_t> make_program(const ProgramRecipe& recipe) {
  flatbuffers::FlatBufferBuilder builder;
  builder.ForceDefaults(true);
  std::vector<flatbuffers::Offset<pte::EValue>> values{
      tensor(builder, recipe, 0, false),
      tensor(builder, recipe, recipe.constant_index, false),
      pte::CreateEValue(builder, pte::KernelTypes::Int, pte::CreateInt(builder, 1).Union()),
      tensor(builder, recipe, 0, true),
  };
  if (recipe.lists != 0) {
    const auto items = builder.CreateVector(std::vector<std::uint8_t>(recipe.items, 1));
    for (std::size_t i = 0; i < recipe.lists; ++i) {
      const auto list = pte::CreateBoolList(builder, items);
      values.push_back(pte::CreateEValue(builder, pte::KernelTypes::BoolList, list.Union()));
    }
  }
  const auto arguments = builder.CreateVector(std::vector<std::int32_t>{recipe.first_argument, 1, 2, 3, 3});
  const auto call = pte::CreateKernelCall(builder, 0, arguments);
  const auto instruction =
      pte::CreateInstruction(builder, pte::InstructionArguments::KernelCall, call.Union());
  const auto instructions = builder.CreateVector(&instruction, 1);
  const auto chain = pte::CreateChain(builder, 0, 0, instructions);
  const auto op = pte::CreateOperatorDirect(builder, recipe.operator_name.c_str(), recipe.overload.c_str());
  const auto plan =
      pte::CreateExecutionPlan(builder, builder.CreateString("forward"), 0, builder.CreateVector(values),
                               builder.CreateVector(std::vector<std::int32_t>{0}),
                               builder.CreateVector(std::vector<std::int32_t>{recipe.output_value}),
                               builder.CreateVector(&chain, 1), builder.CreateVector(&op, 1),
                               builder.CreateVector(std::vector<flatbuffers::Offset<pte::BackendDelegate>>{}),
                               builder.CreateVector(std::vector<std::int64_t>{0, recipe.planned_bytes}));
  const auto segment = pte::CreateDataSegment(builder, 0, recipe.segment_bytes);
  const auto constants =
      pte::CreateSubsegmentOffsets(builder, 0, builder.CreateVector(std::vector<std::uint64_t>{0, 0}));
  const auto plans = builder.CreateVector(&plan, 1);
  const auto segments = builder.CreateVector(&segment, 1);
  builder.Finish(pte::CreateProgram(builder, 0, plans, 0, 0, segments, constants), pte::ProgramIdentifier());

  std::vector<std::uint8_t> file(builder.GetBufferPointer(), builder.GetBufferPointer() + builder.GetSize());
  const std::uint32_t root = flatbuffers::ReadScalar<std::uint32_t>(file.data());
  file.insert(file.begin() + kInsertAt, kHeader, 0);
  put_number(&file, 0, root + kHeader, 4);
  const std::size_t program_size = file.size();
  file.resize((program_size + kAlignment - 1) / kAlignment * kAlignment);
  std::memcpy(file.data() + kInsertAt, "eh00", 4);
  put_number(&file, 12, kHeader, 4);
  put_number(&file, 16, program_size, 8);
  put_number(&file, 24, file.size(), 8);
  put_number(&file, 32, 24, 8);
  const float numbers[] = {1, 2, 3, 4, 5, 6};
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(numbers);
  file.insert(file.end(), bytes, bytes + sizeof(numbers));
  return file;
}
