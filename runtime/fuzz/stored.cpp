#include "stored.h"

#include <flatbuffers/verifier.h>

#include <set>

#include "program_bfbs_generated.h"
#include "program_file.h"
#include "program_generated.h"
#include "xnnpack_runtime_bfbs_generated.h"
#include "xnnpack_runtime_generated.h"

namespace slipway::fuzz {
namespace {

constexpr std::size_t kIdentifier = 4;
constexpr char kBackend[] = "XnnpackBackend";

bool well_formed_graph(const std::uint8_t* graph, std::size_t size) {
  if (size < 2 * kIdentifier || size >= FLATBUFFERS_MAX_BUFFER_SIZE ||
      reinterpret_cast<std::uintptr_t>(graph) % sizeof(std::uint64_t) != 0) {
    return false;
  }
  flatbuffers::Verifier verifier(graph, size);
  return verifier.VerifyBuffer<xnn::XNNGraph>(nullptr);
}

// Finds the graph behind its header.
bool locate(const std::uint8_t* data, StoredGraph* found) {
  const std::uint8_t* payload = data + found->payload;
  found->graph = found->payload;
  found->graph_size = found->payload_size;
  if (found->payload_size >= kGraphHeader && std::memcmp(payload + 4, "XH00", 4) == 0) {
    const auto offset = number_at<std::uint32_t>(payload + kGraphOffset);
    const auto size = number_at<std::uint32_t>(payload + kGraphSize);
    if (offset > found->payload_size || size > found->payload_size - offset) {
      return false;
    }
    found->graph += offset;
    found->graph_size = size;
  }
  return well_formed_graph(data + found->graph, found->graph_size);
}

// Where a delegate's data lie.
bool locate_payload(const std::uint8_t* data, std::size_t size, const ProgramLayout& layout,
                    const pte::BackendDelegateDataReference& reference, StoredGraph* found) {
  const pte::Program& program = *pte::GetProgram(data);
  found->index = reference.index();
  found->in_segment = reference.location() == pte::DataLocation::SEGMENT;
  if (found->in_segment) {
    const auto* segments = program.segments();
    if (segments == nullptr || found->index >= segments->size()) {
      return false;
    }
    const pte::DataSegment& segment = *segments->Get(found->index);
    const std::uint64_t room = layout.segment_base <= size ? size - layout.segment_base : 0;
    found->payload = static_cast<std::size_t>(layout.segment_base + segment.offset());
    found->payload_size = static_cast<std::size_t>(segment.size());
    return segment.offset() <= room && segment.size() <= room - segment.offset();
  }
  const auto* items = program.backend_delegate_data();
  if (items == nullptr || found->index >= items->size() || items->Get(found->index)->data() == nullptr) {
    return false;
  }
  const auto* bytes = items->Get(found->index)->data();
  found->payload = static_cast<std::size_t>(bytes->data() - data);
  found->payload_size = bytes->size();
  return true;
}

}  // namespace

const reflection::Schema& program_schema() {
  return *reflection::GetSchema(pte::ProgramBinarySchema::data());
}

const reflection::Schema& graph_schema() {
  return *reflection::GetSchema(xnn::XNNGraphBinarySchema::data());
}

bool well_formed(const std::uint8_t* data, std::size_t size) {
  const Result<ProgramLayout> layout = check_layout(data, size, "");
  if (!layout.ok() || reinterpret_cast<std::uintptr_t>(data) % sizeof(std::uint64_t) != 0) {
    return false;
  }
  const auto program_size = static_cast<std::size_t>(layout.value().program_size);
  flatbuffers::Verifier verifier(data, program_size);
  return program_size < FLATBUFFERS_MAX_BUFFER_SIZE && pte::VerifyProgramBuffer(verifier);
}

std::vector<StoredGraph> find_graphs(const std::uint8_t* data, std::size_t size) {
  std::vector<StoredGraph> graphs;
  std::set<std::size_t> known;
  const Result<ProgramLayout> layout = check_layout(data, size, "");
  const auto* methods = layout.ok() ? pte::GetProgram(data)->execution_plan() : nullptr;
  for (flatbuffers::uoffset_t m = 0; methods != nullptr && m < methods->size(); ++m) {
    const auto* delegates = methods->Get(m)->delegates();
    for (flatbuffers::uoffset_t d = 0; delegates != nullptr && d < delegates->size(); ++d) {
      const pte::BackendDelegate& delegate = *delegates->Get(d);
      StoredGraph found{};
      found.path = "execution_plan[" + std::to_string(m) + "].delegates[" + std::to_string(d) + "]";
      if (delegate.id() != nullptr && delegate.id()->str() == kBackend && delegate.processed() != nullptr &&
          locate_payload(data, size, layout.value(), *delegate.processed(), &found) && locate(data, &found) &&
          known.insert(found.graph).second) {
        graphs.push_back(found);
      }
    }
  }
  return graphs;
}

}  // namespace slipway::fuzz
