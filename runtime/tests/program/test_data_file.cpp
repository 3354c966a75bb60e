#include "check.h"
#include "data_file.h"
#include "flat_tensor_generated.h"

namespace {

using namespace slipway;

struct DataRecipe {
  std::uint32_t segment = 0;
  std::int32_t rows = 2;
  std::uint64_t segment_bytes = 24;
};

// One weight, "w", float32 rows x 3.
std::vector<std::uint8_t> make_data(const DataRecipe& recipe = {}) {
  flatbuffers::FlatBufferBuilder builder;
  const auto sizes = builder.CreateVector(std::vector<std::int32_t>{recipe.rows, 3});
  const auto order = builder.CreateVector(std::vector<std::uint8_t>{0, 1});
  const auto layout = ptd::CreateTensorLayout(builder, pte::ScalarType::FLOAT, sizes, order);
  const auto item = ptd::CreateNamedData(builder, builder.CreateString("w"), recipe.segment, layout);
  const auto segment = ptd::CreateDataSegment(builder, 0, recipe.segment_bytes);
  const auto segments = builder.CreateVector(&segment, 1);
  const auto items = builder.CreateVector(&item, 1);
  builder.Finish(ptd::CreateFlatTensor(builder, 0, segments, items), ptd::FlatTensorIdentifier());
  std::vector<std::uint8_t> file(builder.GetBufferPointer(), builder.GetBufferPointer() + builder.GetSize());
  const auto put = [&file](std::size_t at, std::uint64_t value, std::size_t size) {
    for (std::size_t i = 0; i < size; ++i) {
      file[at + i] = static_cast<std::uint8_t>(value >> (8 * i));
    }
  };
  const std::uint32_t root = flatbuffers::ReadScalar<std::uint32_t>(file.data());
  file.insert(file.begin() + 8, 40, 0);
  put(0, root + 40, 4);
  const std::size_t flatbuffer = file.size();
  std::memcpy(file.data() + 8, "FH01", 4);
  put(12, 40, 4);
  put(16, 48, 8);
  put(24, flatbuffer - 48, 8);
  file.resize((flatbuffer + 15) / 16 * 16);
  put(32, file.size(), 8);
  put(40, 24, 8);
  file.resize(file.size() + 24, 1);
  return file;
}

Status data_status(const std::vector<std::uint8_t>& file) {
  return check_data(file.data(), file.size(), "a.ptd");
}

TEST(data_whole_is_accepted) {
  CHECK_EQUAL(data_status(make_data()).message(), "");
}

TEST(data_cut_at_every_byte_is_refused) {
  const std::vector<std::uint8_t> file = make_data();
  for (std::size_t size = 0; size < file.size(); ++size) {
    const std::vector<std::uint8_t> cut(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(size));
    CHECK_CONTAINS(data_status(cut).message(), "truncated: " + std::to_string(size) + " bytes found");
  }
}

TEST(data_with_any_byte_changed_is_read_or_refused) {
  const std::vector<std::uint8_t> file = make_data();
  for (std::size_t at = 0; at < file.size(); ++at) {
    for (const int mask : {0x01, 0x80, 0xFF}) {
      std::vector<std::uint8_t> changed = file;
      changed[at] = static_cast<std::uint8_t>(changed[at] ^ mask);
      const Status status = data_status(changed);
      CHECK(status.ok() || status.code() == Code::kFile);
    }
  }
}

TEST(data_tables_are_checked) {
  const std::pair<DataRecipe, const char*> all[] = {{{1, 2, 24}, "no segment"},
                                                    {{0, 3, 24}, "weight w is larger than its segment"},
                                                    {{0, -1, 24}, "impossible layout"},
                                                    {{0, 2, 25}, "segment 0 lies beyond"}};
  for (const auto& [recipe, why] : all) {
    CHECK_CONTAINS(data_status(make_data(recipe)).message(), why);
  }
  CHECK_CONTAINS(data_status(std::vector<std::uint8_t>(100)).message(), "not a file of weights");
}

}  // namespace
