// ETDump, upstream's record of what a method did and when: the form that executorch.devtools.Inspector reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "slipway/engine.h"
#include "slipway/status.h"

namespace slipway {

// Names that the Inspector knows by heart.
inline constexpr char kExecuteBlock[] = "Execute";
inline constexpr char kLoadBlock[] = "Default";
inline constexpr char kDelegateCall[] = "DELEGATE_CALL";
inline constexpr char kOperatorCall[] = "OPERATOR_CALL";
inline constexpr char kNativeCall[] = "native_call_";  // and the operator's name without "aten::"
inline constexpr char kMethodExecute[] = "Method::execute";
inline constexpr char kMethodInit[] = "Method::init";

// Something that took time; nanoseconds on a clock that only goes forward.
struct TraceEvent {
  std::string name;
  bool delegated = false;  // `name` is the delegate's own word for a part of its work
  std::int32_t chain = -1;
  std::int32_t instruction = 0;
  std::uint64_t start = 0;
  std::uint64_t end = 0;
};

// A tensor that an instruction or a delegate's node gave. A file beside the ETDump has its bytes, row-major.
struct TraceValue {
  std::string name;        // of the operator; of a node: its kind
  std::int32_t node = -1;  // its index in the delegate's graph; -1: the instruction itself
  std::int32_t instruction = 0;
  DType dtype = DType::kUnknown;
  Shape shape;
  std::uint64_t offset = 0;
};

// Loading, or one execution. An event is written when it has ended: what is inside another comes before it.
struct TraceBlock {
  std::string name;
  std::vector<TraceEvent> events;
  std::vector<TraceValue> values = {};
};

// Whether a tensor of the type can be a TraceValue: upstream's Inspector reads no others.
bool has_stored_type(DType dtype);

std::vector<std::uint8_t> write_etdump(const std::vector<TraceBlock>& blocks);
// kExecution when the bytes are no ETDump.
Result<std::vector<TraceBlock>> read_etdump(const std::uint8_t* data, std::size_t size);

// The last `timed` executions summed up by operator, the costliest first: those before them are warm-up, and
// a cold execution costs more than all others. What a delegate's call or a method took besides its operators
// is a row, too: the rows' sum is the executions' time.
std::vector<ProfileRow> rows_of(const std::vector<TraceBlock>& blocks, std::size_t timed);

}  // namespace slipway
