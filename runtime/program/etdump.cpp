#include "etdump.h"

#include <algorithm>

#include "etdump_generated.h"
#include "program_info.h"

namespace slipway {
namespace {

constexpr char kRuntime[] = "runtime";

std::string at_instruction(const std::string& name, std::int32_t instruction) {
  return name + " @" + std::to_string(instruction);
}

// One execution. Events inside another come before it, so that what it took by itself is known then.
void add_block(const TraceBlock& block, ProfileRows* rows) {
  std::uint64_t inside_call = 0;  // of the call whose event is still to come
  std::uint64_t inside_method = 0;
  std::string kernel;
  for (const TraceEvent& event : block.events) {
    const std::uint64_t took = event.end < event.start ? 0 : event.end - event.start;
    // What is shorter than what it is made of counts as nothing.
    const auto add = [&](const std::string& name, const std::string& op, const char* provider,
                         std::uint64_t inside) {
      rows->add(name, op, provider, static_cast<double>(took - std::min(took, inside)) / 1e6);
    };
    if (event.delegated) {
      // "Fully Connected (NC, F32) GEMM #2" is the second of its kind in its graph.
      const std::string kind = event.name.substr(0, event.name.rfind(" #"));
      add(at_instruction(event.name, event.instruction), kind, "XnnpackBackend", 0);
      inside_call += took;
    } else if (event.name.rfind(kNativeCall, 0) == 0) {
      kernel = event.name.substr(sizeof(kNativeCall) - 1);
    } else if (event.name == kOperatorCall) {
      const std::string op = kernel.empty() ? kOperatorCall : kernel;
      add(at_instruction(op, event.instruction), op, "portable", 0);
      inside_method += took;
      kernel.clear();
    } else if (event.name == kDelegateCall) {
      add(at_instruction(kDelegateCall, event.instruction), "around the delegate's operators", kRuntime,
          inside_call);
      inside_method += took;
      inside_call = 0;
    } else if (event.name == kMethodExecute) {
      add(kMethodExecute, "around the instructions", kRuntime, inside_method);
    }
  }
}

// A debug event. Strides are a row-major tensor's.
flatbuffers::Offset<etd::Event> add_value(flatbuffers::FlatBufferBuilder& builder, const TraceValue& value) {
  std::vector<std::int64_t> strides(value.shape.size(), 1);
  for (std::size_t i = strides.size(); i > 1; --i) {
    strides[i - 2] = strides[i - 1] * value.shape[i - 1];
  }
  const auto sizes = builder.CreateVector(value.shape.data(), value.shape.size());
  const auto steps = builder.CreateVector(strides);
  etd::TensorBuilder tensor(builder);
  tensor.add_scalar_type(to_stored(value.dtype));
  tensor.add_sizes(sizes);
  tensor.add_strides(steps);
  tensor.add_offset(static_cast<std::int64_t>(value.offset));
  const auto stored = tensor.Finish();
  etd::ValueBuilder entry(builder);
  entry.add_val(etd::ValueType::Tensor);
  entry.add_tensor(stored);
  const auto entered = entry.Finish();
  const auto name = builder.CreateSharedString(value.name);
  etd::DebugEventBuilder event(builder);
  event.add_chain_index(0);
  event.add_instruction_id(value.instruction);
  event.add_debug_entry(entered);
  event.add_delegate_debug_id_int(value.node);
  event.add_name(name);
  return etd::CreateEvent(builder, 0, 0, event.Finish());
}

}  // namespace

bool has_stored_type(DType dtype) {
  return dtype != DType::kUnknown && dtype != DType::kNone && dtype != DType::kComplex64 &&
         dtype != DType::kComplex128 && to_stored(dtype) <= pte::ScalarType::BOOL;
}

std::vector<std::uint8_t> write_etdump(const std::vector<TraceBlock>& blocks) {
  flatbuffers::FlatBufferBuilder builder;
  std::vector<flatbuffers::Offset<etd::RunData>> runs;
  for (const TraceBlock& block : blocks) {
    std::vector<flatbuffers::Offset<etd::Event>> events;
    for (const TraceEvent& event : block.events) {
      const auto name = builder.CreateSharedString(event.name);
      etd::ProfileEventBuilder made(builder);
      event.delegated ? made.add_delegate_debug_id_str(name) : made.add_name(name);
      made.add_chain_index(event.chain);
      made.add_instruction_id(event.instruction);
      made.add_start_time(event.start);
      made.add_end_time(event.end);
      events.push_back(etd::CreateEvent(builder, made.Finish()));
    }
    for (const TraceValue& value : block.values) {
      events.push_back(add_value(builder, value));
    }
    const auto name = builder.CreateString(block.name);
    const auto list = builder.CreateVector(events);
    etd::RunDataBuilder run(builder);
    run.add_name(name);
    run.add_events(list);
    runs.push_back(run.Finish());
  }
  const auto list = builder.CreateVector(runs);
  etd::ETDumpBuilder root(builder);
  root.add_run_data(list);
  builder.FinishSizePrefixed(root.Finish(), etd::ETDumpIdentifier());
  return {builder.GetBufferPointer(), builder.GetBufferPointer() + builder.GetSize()};
}

Result<std::vector<TraceBlock>> read_etdump(const std::uint8_t* data, std::size_t size) {
  flatbuffers::Verifier::Options limits;
  limits.max_tables = 100'000'000;  // an event has two, and there are as many events as one records
  flatbuffers::Verifier verifier(data, size, limits);
  if (!verifier.VerifySizePrefixedBuffer<etd::ETDump>(etd::ETDumpIdentifier())) {
    return Status(Code::kExecution, "The engine's profile cannot be read: it is not an ETDump.",
                  "run without --profile");
  }
  std::vector<TraceBlock> blocks;
  const etd::ETDump& root = *flatbuffers::GetSizePrefixedRoot<etd::ETDump>(data);
  if (root.run_data() == nullptr) {
    return blocks;
  }
  for (const etd::RunData* run : *root.run_data()) {
    TraceBlock& block = blocks.emplace_back();
    block.name = run->name() == nullptr ? "" : run->name()->str();
    for (std::size_t i = 0; run->events() != nullptr && i < run->events()->size(); ++i) {
      const etd::ProfileEvent* event = item_of(run->events(), i)->profile_event();
      if (event == nullptr) {
        continue;
      }
      const auto* id = event->delegate_debug_id_str();
      const bool delegated = id != nullptr || event->delegate_debug_id_int() >= 0;
      const std::string number = "operator " + std::to_string(event->delegate_debug_id_int());
      const std::string name = event->name() == nullptr ? "" : event->name()->str();
      block.events.push_back({!delegated ? name : (id == nullptr ? number : id->str()), delegated,
                              event->chain_index(), event->instruction_id(), event->start_time(),
                              event->end_time()});
    }
  }
  return blocks;
}

std::vector<ProfileRow> rows_of(const std::vector<TraceBlock>& blocks, std::size_t timed) {
  ProfileRows rows;
  auto left = static_cast<std::size_t>(std::count_if(
      blocks.begin(), blocks.end(), [](const TraceBlock& block) { return block.name == kExecuteBlock; }));
  for (const TraceBlock& block : blocks) {
    if (block.name == kExecuteBlock && left-- <= timed) {
      add_block(block, &rows);
    }
  }
  return rows.sorted();
}

}  // namespace slipway
