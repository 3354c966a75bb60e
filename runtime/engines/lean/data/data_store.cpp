#include "lean/data/data_store.h"

#include <algorithm>
#include <new>
#include <utility>

#include "flat_tensor_generated.h"
#include "program_info.h"

#include <xnnpack.h>

namespace slipway::lean {
namespace {

// Where a .ptd file's header says that segments begin (program_file.cpp checks it).
constexpr std::size_t kDataSegmentBase = 32;
// A cache line, and more than any vector register of XNNPACK's asks for.
constexpr std::size_t kAlignment = 64;
constexpr std::size_t kFirstShared = 2;  // 0 is reserved, 1 for intermediate values

std::size_t arenas_of(const pte::ExecutionPlan& plan) {
  return plan.non_const_buffer_sizes() == nullptr ? 0 : plan.non_const_buffer_sizes()->size();
}

std::int64_t size_of_arena(const pte::ExecutionPlan& plan, std::size_t arena) {
  return item_of(plan.non_const_buffer_sizes(), arena);
}

}  // namespace

Result<DataStore> DataStore::open(const std::string& model_path, const std::string& data_path) {
  SLIPWAY_TRY(MappedFile file, MappedFile::open(model_path));
  return open(std::move(file), model_path, data_path);
}

Result<DataStore> DataStore::open(MappedFile file, const std::string& name, const std::string& data_path) {
  SLIPWAY_TRY(const pte::Program* program, check_program(file.data(), file.size(), name));
  SLIPWAY_TRY(const ProgramLayout layout, check_layout(file.data(), file.size(), name));
  DataStore store(std::move(file), program, layout);
  if (const auto* items = store.program().named_data()) {
    for (const pte::NamedData* item : *items) {
      store.named_.emplace(item->key()->str(), store.segment(item->segment_index()));
    }
  }
  if (!data_path.empty()) {
    SLIPWAY_RETURN_IF_ERROR(store.open_data(data_path));
  }
  return store;
}

Status DataStore::open_data(const std::string& path) {
  SLIPWAY_TRY(MappedFile file, MappedFile::open(path));
  const std::uint8_t* data = file.data();
  SLIPWAY_RETURN_IF_ERROR(check_data(data, file.size(), path));
  const auto base = static_cast<std::size_t>(little_endian(data + kDataSegmentBase, 8));
  const ptd::FlatTensor* table = ptd::GetFlatTensor(data);
  for (const ptd::NamedData* item : *table->named_data()) {
    const ptd::DataSegment* segment = table->segments()->Get(item->segment_index());
    const bool added =
        named_
            .emplace(item->key()->str(), Bytes{data + base + static_cast<std::size_t>(segment->offset()),
                                               static_cast<std::size_t>(segment->size())})
            .second;
    if (!added) {
      return {Code::kFile,
              "The weight " + item->key()->str() + " is both in the program and in " + path + ".",
              "name the .ptd file that was exported with the program",
              {path}};
    }
  }
  data_files_.emplace(path, std::move(file));
  return {};
}

Bytes DataStore::segment(std::size_t index) const {
  const pte::DataSegment* segment = item_of(program_->segments(), index);
  return {file_.data() + static_cast<std::size_t>(layout_.segment_base + segment->offset()),
          static_cast<std::size_t>(segment->size())};
}

Bytes DataStore::in_segment(const pte::SubsegmentOffsets& table, std::size_t index) const {
  const Bytes all = segment(table.segment_index());
  const auto offset = static_cast<std::size_t>(item_of(table.offsets(), index));
  return {all.data + offset, all.size - offset};
}

Bytes DataStore::constant(std::size_t index) const {
  if (program_->constant_buffer() != nullptr && program_->constant_buffer()->size() != 0) {
    const auto* storage = item_of(program_->constant_buffer(), index)->storage();
    return storage == nullptr ? Bytes() : Bytes{storage->data(), storage->size()};
  }
  return in_segment(*program_->constant_segment(), index);
}

Bytes DataStore::initial(std::size_t table, std::size_t index) const {
  return in_segment(*item_of(program_->mutable_data_segments(), table), index);
}

Bytes DataStore::delegate(const pte::BackendDelegateDataReference& reference) const {
  if (reference.location() == pte::DataLocation::SEGMENT) {
    return segment(reference.index());
  }
  const auto* data = program_->backend_delegate_data()->Get(reference.index())->data();
  return data == nullptr ? Bytes() : Bytes{data->data(), data->size()};
}

std::vector<const MappedFile*> DataStore::files() const {
  std::vector<const MappedFile*> all = {&file_};
  for (const auto& [path, file] : data_files_) {
    all.push_back(&file);
  }
  return all;
}

bool DataStore::find(const void* data, std::uint64_t* number, std::uint64_t* offset) const {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  const std::vector<const MappedFile*> all = files();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto begin = reinterpret_cast<std::uintptr_t>(all[i]->data());
    if (address >= begin && address - begin < all[i]->size()) {
      *number = i + 1;
      *offset = address - begin;
      return true;
    }
  }
  return false;
}

void DataStore::forget(Bytes bytes) const {
  for (const MappedFile* file : files()) {
    file->forget(bytes.data, bytes.size);
  }
}

void DataStore::forget_all() const {
  for (const MappedFile* file : files()) {
    file->forget(file->data(), file->size());
  }
}

Bytes DataStore::named(std::string_view key) const {
  const auto found = named_.find(key);
  return found == named_.end() ? Bytes() : found->second;
}

std::vector<std::size_t> arenas_used(const pte::ExecutionPlan& plan) {
  std::vector<std::size_t> used(arenas_of(plan));
  for (const pte::EValue* value : *plan.values()) {
    const auto* tensor = value->val_as_Tensor();
    const auto* allocation = tensor == nullptr ? nullptr : tensor->allocation_info();
    if (allocation != nullptr) {
      // find_fault has seen that it ends within its memory's size, which is 63 bits.
      const std::uint64_t begin =
          std::uint64_t{allocation->memory_offset_high()} << 32 | allocation->memory_offset_low();
      const std::uint64_t end = std::min<std::uint64_t>(begin + tensor_bytes(*tensor), SIZE_MAX);
      used[allocation->memory_id()] = std::max(used[allocation->memory_id()], static_cast<std::size_t>(end));
    }
  }
  return used;
}

std::uint8_t* Blocks::allocate(std::size_t bytes) {
  constexpr std::size_t kAround = kAlignment + XNN_EXTRA_BYTES;
  constexpr std::size_t kLarge = std::size_t{16} << 10;
  if (bytes >= kLarge && bytes <= SIZE_MAX - kAround) {
    // Zeroed by the system, page by page as they are used: clearing 45 KiB here took a tenth of a small
    // program's load.
    Pages pages = Pages::allocate(bytes + kAround);
    if (pages.data() == nullptr) {
      return nullptr;
    }
    pages_.push_back(std::move(pages));
    return pages_.back().data();
  }
  auto* raw = bytes > SIZE_MAX - kAround ? nullptr : new (std::nothrow) std::uint8_t[bytes + kAround]();
  if (raw == nullptr) {
    return nullptr;
  }
  memory_.emplace_back(raw);
  const auto address = reinterpret_cast<std::uintptr_t>(raw);
  return raw + (kAlignment - address % kAlignment) % kAlignment;
}

SharedArenas::SharedArenas(const pte::Program& program) {
  const auto& plans = *program.execution_plan();
  if (plans.size() < 2) {
    return;
  }
  std::vector<std::vector<std::size_t>> used;
  for (const pte::ExecutionPlan* plan : plans) {
    used.push_back(arenas_used(*plan));
  }
  for (std::size_t arena = kFirstShared; arena < arenas_of(*plans.Get(0)); ++arena) {
    const std::int64_t size = size_of_arena(*plans.Get(0), arena);
    const bool everywhere = std::all_of(plans.begin(), plans.end(), [&](const pte::ExecutionPlan* plan) {
      return arena < arenas_of(*plan) && size_of_arena(*plan, arena) == size;
    });
    if (everywhere && size > 0) {
      std::size_t& most = sizes_[arena];
      for (const std::vector<std::size_t>& one : used) {
        most = std::max(most, one[arena]);
      }
    }
  }
}

std::uint8_t* SharedArenas::memory(std::size_t arena) {
  std::uint8_t*& found = made_[arena];
  if (found == nullptr) {
    found = blocks_.allocate(sizes_.at(arena));
  }
  return found;
}

}  // namespace slipway::lean
