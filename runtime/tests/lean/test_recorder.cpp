// What --etdump, --profile and --values have of a method with a delegate, portable kernels, a loop and a
// branch.
#include <map>

#include "check.h"
#include "etdump.h"
#include "etdump_generated.h"
#include "graph_maker.h"
#include "lean/method/recorder.h"
#include "lean/xnnpack/xnn_delegate.h"
#include "program_generated.h"
#include "slipway/engine.h"
#include "temporary_folder.h"

using namespace slipway;
using slipway::lean::Recorder;

namespace {

using LoopArguments = std::vector<std::int32_t>;
using LoopBuilder = flatbuffers::FlatBufferBuilder;

enum LoopValue : std::int32_t { kLoopX, kMiddle, kLoopOne, kLoopY, kFlag, kLoopEnd, kNever, kLoopOut };

flatbuffers::Offset<pte::EValue> recorded_pair(LoopBuilder& builder, pte::ScalarType type,
                                               std::uint32_t offset, bool planned = true) {
  const auto sizes = builder.CreateVector(std::vector<std::int32_t>{2});
  const auto order = builder.CreateVector(std::vector<std::uint8_t>{0});
  const auto allocation = planned ? pte::CreateAllocationDetails(builder, 1, offset, 0) : 0;
  return pte::CreateEValue(builder, pte::KernelTypes::Tensor,
                           pte::CreateTensor(builder, type, 0, sizes, order, false, 0, allocation).Union());
}

flatbuffers::Offset<pte::Instruction> loop_kernel(LoopBuilder& builder, std::int32_t op,
                                                  const LoopArguments& arguments) {
  return pte::CreateInstruction(builder, pte::InstructionArguments::KernelCall,
                                pte::CreateKernelCall(builder, op, builder.CreateVector(arguments)).Union());
}

flatbuffers::Offset<pte::Instruction> loop_jump(LoopBuilder& builder, LoopValue condition, std::int32_t to) {
  return pte::CreateInstruction(builder, pte::InstructionArguments::JumpFalseCall,
                                pte::CreateJumpFalseCall(builder, condition, to).Union());
}

// y = x; middle = |-|x|| (delegated); do y += middle until some y >= 3; a branch that is never taken;
// out = y + middle.
std::vector<std::uint8_t> program_with_a_loop() {
  GraphRecipe graph{xnn::XNodeUnion::XNNNegate, {{}, {}}};
  graph.values[0].dims = graph.values[1].dims = {2};
  graph.values[1].role = ValueRecipe::Role::kOutput;
  graph.inside = true;
  const std::vector<std::uint8_t> payload = make_graph(graph);

  LoopBuilder builder;
  builder.ForceDefaults(true);
  builder.ForceVectorAlignment(payload.size(), 1, 16);
  const auto stored = pte::CreateBackendDelegateInlineData(builder, builder.CreateVector(payload));
  const auto real = pte::ScalarType::FLOAT;
  const std::vector<flatbuffers::Offset<pte::EValue>> values{
      recorded_pair(builder, real, 0, false),
      recorded_pair(builder, real, 0),
      pte::CreateEValue(builder, pte::KernelTypes::Int, pte::CreateInt(builder, 1).Union()),
      recorded_pair(builder, real, 16),
      recorded_pair(builder, pte::ScalarType::BOOL, 32),
      pte::CreateEValue(builder, pte::KernelTypes::Double, pte::CreateDouble(builder, 3.0).Union()),
      pte::CreateEValue(builder, pte::KernelTypes::Bool, pte::CreateBool(builder, false).Union()),
      recorded_pair(builder, real, 48),
  };
  const std::vector<flatbuffers::Offset<pte::Instruction>> instructions{
      pte::CreateInstruction(builder, pte::InstructionArguments::MoveCall,
                             pte::CreateMoveCall(builder, kLoopX, kLoopY).Union()),
      pte::CreateInstruction(
          builder, pte::InstructionArguments::DelegateCall,
          pte::CreateDelegateCall(builder, 0, builder.CreateVector(LoopArguments{kLoopX, kMiddle})).Union()),
      loop_kernel(builder, 0, {kLoopY, kMiddle, kLoopOne, kLoopY, kLoopY}),
      loop_kernel(builder, 1, {kLoopY, kLoopEnd, kFlag, kFlag}),
      loop_jump(builder, kFlag, 2),
      loop_jump(builder, kNever, 7),
      loop_kernel(builder, 2, {kLoopY, kLoopY, kLoopY, kLoopY}),
      loop_kernel(builder, 0, {kLoopY, kMiddle, kLoopOne, kLoopOut, kLoopOut}),
  };
  const auto chain = pte::CreateChain(builder, 0, 0, builder.CreateVector(instructions));
  const std::vector<flatbuffers::Offset<pte::Operator>> operators{
      pte::CreateOperatorDirect(builder, "aten::add", "out"),
      pte::CreateOperatorDirect(builder, "aten::ge", "Scalar_out"),
      pte::CreateOperatorDirect(builder, "aten::mul", "out"),
  };
  const auto specs = builder.CreateVector(std::vector<flatbuffers::Offset<pte::CompileSpec>>{});
  const auto where = pte::CreateBackendDelegateDataReference(builder, pte::DataLocation::INLINE, 0);
  const auto delegate =
      pte::CreateBackendDelegate(builder, builder.CreateString("XnnpackBackend"), where, specs);
  const auto plan = pte::CreateExecutionPlan(
      builder, builder.CreateString("forward"), 0, builder.CreateVector(values),
      builder.CreateVector(LoopArguments{kLoopX}), builder.CreateVector(LoopArguments{kLoopOut}),
      builder.CreateVector(&chain, 1), builder.CreateVector(operators), builder.CreateVector(&delegate, 1),
      builder.CreateVector(std::vector<std::int64_t>{0, 64}));
  const auto plans = builder.CreateVector(&plan, 1);
  const auto inside = builder.CreateVector(&stored, 1);
  builder.Finish(pte::CreateProgram(builder, 0, plans, 0, inside), pte::ProgramIdentifier());
  return {builder.GetBufferPointer(), builder.GetBufferPointer() + builder.GetSize()};
}

template <typename Number>
std::vector<double> elements_of(const std::uint8_t* at, std::size_t count) {
  std::vector<Number> found(count);
  std::memcpy(found.data(), at, count * sizeof(Number));
  return {found.begin(), found.end()};
}

// A value in an ETDump, with its elements out of the file beside it.
struct RecordedValue {
  std::string name;
  std::int32_t instruction;
  std::int32_t node;
  std::vector<double> elements;

  bool operator==(const RecordedValue& other) const {
    return name == other.name && instruction == other.instruction && node == other.node &&
           elements == other.elements;
  }
};

std::vector<RecordedValue> recorded_in(const etd::RunData& run, const std::vector<std::uint8_t>& bytes) {
  std::vector<RecordedValue> found;
  for (const etd::Event* event : *run.events()) {
    const etd::DebugEvent* debug = event->debug_event();
    if (debug == nullptr) {
      continue;
    }
    const etd::Tensor& tensor = *debug->debug_entry()->tensor();
    CHECK_EQUAL(tensor.offset() % 64, 0);
    CHECK_EQUAL(tensor.sizes()->size(), 1U);
    const auto* at = bytes.data() + tensor.offset();
    found.push_back({debug->name()->str(), debug->instruction_id(), debug->delegate_debug_id_int(),
                     tensor.scalar_type() == pte::ScalarType::BOOL ? elements_of<std::uint8_t>(at, 2)
                                                                   : elements_of<float>(at, 2)});
  }
  return found;
}

// The engine after three executions with x = (1, -2).
std::unique_ptr<Engine> looped(const TemporaryFolder& folder, bool values) {
  std::unique_ptr<Engine> engine = make_engine(nullptr);
  EngineOptions limits;
  limits.max_jumps = 10;  // a fault must not go round for ever
  CHECK(engine->configure(limits).ok());
  LoadOptions options{folder.write("loop.pte", program_with_a_loop()), "", "forward", {}, true};
  options.values = values;
  const Status loaded = engine->load(options);
  CHECK_EQUAL(loaded.message(), "");
  Tensor x;
  x.dtype = DType::kFloat32;
  x.shape = {2};
  x.bytes.resize(2 * sizeof(float));
  const float given[] = {1, -2};
  std::memcpy(x.bytes.data(), given, sizeof(given));
  for (int i = 0; i < 3; ++i) {
    CHECK(engine->set_inputs({x}).ok());
    const Status done = engine->execute();
    CHECK_EQUAL(done.message(), "");
  }
  const auto outputs = engine->outputs();
  CHECK(outputs.ok());
  CHECK((elements_of<float>(outputs.value().at(0).bytes.data(), 2) == std::vector<double>{4, 4}));
  return engine;
}

}  // namespace

TEST(values_are_those_of_the_last_execution_in_its_order) {
  const TemporaryFolder folder;
  const auto engine = looped(folder, true);
  const std::vector<std::uint8_t> file = engine->profile().value();
  const std::vector<std::uint8_t> bytes = engine->values().value();
  const auto& runs = *flatbuffers::GetSizePrefixedRoot<etd::ETDump>(file.data())->run_data();
  std::vector<const etd::RunData*> executions;
  for (const etd::RunData* run : runs) {
    if (run->name()->str() == kExecuteBlock) {
      executions.push_back(run);
    }
  }
  CHECK_EQUAL(executions.size(), 3U);
  CHECK(recorded_in(*executions[0], bytes).empty());
  CHECK(recorded_in(*executions[1], bytes).empty());
  // Every node of the delegate, what each kernel gave in both rounds of the loop, and nothing of the branch.
  const std::vector<RecordedValue> expected{
      {"XNNAbs", 1, 0, {1, 2}},
      {"XNNNegate", 1, 1, {-1, -2}},
      {"XNNAbs", 1, 2, {1, 2}},
      {"native_call_add.out", 2, -1, {2, 0}},
      {"native_call_ge.Scalar_out", 3, -1, {0, 0}},
      {"native_call_add.out", 2, -1, {3, 2}},
      {"native_call_ge.Scalar_out", 3, -1, {1, 0}},
      {"native_call_add.out", 7, -1, {4, 4}},
  };
  const std::vector<RecordedValue> found = recorded_in(*executions[2], bytes);
  CHECK_EQUAL(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size() && i < expected.size(); ++i) {
    CHECK_EQUAL(found[i].name, expected[i].name);
    CHECK(found[i] == expected[i]);
  }
}

TEST(rounds_of_a_loop_are_calls_and_a_branch_not_taken_is_absent) {
  const TemporaryFolder folder;
  const auto engine = looped(folder, false);
  std::map<std::string, std::uint64_t> calls;
  const auto rows = engine->profile_rows(2);
  for (const ProfileRow& row : rows.value()) {
    CHECK_EQUAL(row.times_ms.size(), row.count);
    calls[row.name] = row.count;
  }
  // Two of three executions are timed.
  CHECK_EQUAL(calls["add.out @2"], 4U);
  CHECK_EQUAL(calls["ge.Scalar_out @3"], 4U);
  CHECK_EQUAL(calls["add.out @7"], 2U);
  CHECK_EQUAL(calls["DELEGATE_CALL @1"], 2U);
  CHECK_EQUAL(calls.count("mul.out @6"), 0U);
  std::uint64_t delegated = 0;
  for (const auto& [name, count] : calls) {
    delegated += name.find("#") == std::string::npos ? 0 : count;
  }
  CHECK_EQUAL(delegated, 6U);  // three nodes
}

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
