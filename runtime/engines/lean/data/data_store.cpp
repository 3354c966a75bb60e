#include "lean/data/data_store.h"

#include <utility>

#include "flat_tensor_generated.h"
#include "program_file.h"

namespace slipway::lean {
namespace {

// Where a .ptd file's header says that segments begin (program_file.cpp checks it).
constexpr std::size_t kDataSegmentBase = 32;

}  // namespace

Result<DataStore> DataStore::open(const std::string& model_path, const std::string& data_path) {
  Result<MappedFile> file = MappedFile::open(model_path);
  SLIPWAY_RETURN_IF_ERROR(file);
  return open(std::move(file.value()), model_path, data_path);
}

Result<DataStore> DataStore::open(MappedFile file, const std::string& name, const std::string& data_path) {
  const Result<const pte::Program*> program = check_program(file.data(), file.size(), name);
  SLIPWAY_RETURN_IF_ERROR(program);
  const Result<ProgramLayout> layout = check_layout(file.data(), file.size(), name);
  SLIPWAY_RETURN_IF_ERROR(layout);
  DataStore store(std::move(file), program.value(), layout.value());
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
  Result<MappedFile> file = MappedFile::open(path);
  SLIPWAY_RETURN_IF_ERROR(file);
  const std::uint8_t* data = file.value().data();
  SLIPWAY_RETURN_IF_ERROR(check_data(data, file.value().size(), path));
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
  data_files_.emplace(path, std::move(file.value()));
  return {};
}

Bytes DataStore::segment(std::size_t index) const {
  const pte::DataSegment* segment = program_->segments()->Get(static_cast<flatbuffers::uoffset_t>(index));
  return {file_.data() + static_cast<std::size_t>(layout_.segment_base + segment->offset()),
          static_cast<std::size_t>(segment->size())};
}

Bytes DataStore::in_segment(const pte::SubsegmentOffsets& table, std::size_t index) const {
  const Bytes all = segment(table.segment_index());
  const auto offset =
      static_cast<std::size_t>(table.offsets()->Get(static_cast<flatbuffers::uoffset_t>(index)));
  return {all.data + offset, all.size - offset};
}

Bytes DataStore::constant(std::size_t index) const {
  if (program_->constant_buffer() != nullptr && program_->constant_buffer()->size() != 0) {
    const auto* storage =
        program_->constant_buffer()->Get(static_cast<flatbuffers::uoffset_t>(index))->storage();
    return storage == nullptr ? Bytes() : Bytes{storage->data(), storage->size()};
  }
  return in_segment(*program_->constant_segment(), index);
}

Bytes DataStore::initial(std::size_t table, std::size_t index) const {
  return in_segment(*program_->mutable_data_segments()->Get(static_cast<flatbuffers::uoffset_t>(table)),
                    index);
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
  file_.forget(bytes.data, bytes.size);
  for (const auto& [path, file] : data_files_) {
    file.forget(bytes.data, bytes.size);
  }
}

void DataStore::forget_all() const {
  file_.forget(file_.data(), file_.size());
  for (const auto& [path, file] : data_files_) {
    file.forget(file.data(), file.size());
  }
}

Bytes DataStore::named(std::string_view key) const {
  const auto found = named_.find(key);
  return found == named_.end() ? Bytes() : found->second;
}

}  // namespace slipway::lean
