#include "check.h"
#include "etdump.h"
#include "flat_tensor_generated.h"
#include "program_builder.h"
#include "program_file.h"
#include "program_info.h"

namespace {

using namespace slipway;

// The vector is at least aligned as malloc aligns, which is all the schema asks of these small programs.
Status program_status(const std::vector<std::uint8_t>& file) {
  const auto program = check_program(file.data(), file.size(), "a.pte");
  return program.ok() ? Status() : program.status();
}

void program_refused(const std::vector<std::uint8_t>& file, const std::string& why) {
  const Status status = program_status(file);
  CHECK(status.code() == Code::kFile);
  CHECK_CONTAINS(status.message(), why);
  CHECK(!status.fix().empty());
}

void program_refused(const ProgramRecipe& recipe, const std::string& why) {
  program_refused(make_program(recipe), why);
}

std::vector<std::uint8_t> text(const std::string& start) {
  std::vector<std::uint8_t> file(start.begin(), start.end());
  file.resize(300, 0);
  return file;
}

// Every list is well-formed; together they would take 100 GB, and minutes to look at.
TEST(program_whose_lists_share_their_items_a_million_times_is_refused) {
  ProgramRecipe recipe;
  recipe.lists = 100'000;
  recipe.items = 1'000'000;
  program_refused(recipe, "refers to its lists and names more often than a file of its size does");
  recipe.lists = 100;
  recipe.items = 1000;
  CHECK(program_status(make_program(recipe)).ok());
}

TEST(program_cut_at_every_byte_is_refused) {
  const std::vector<std::uint8_t> file = make_program();
  const std::string whole = std::to_string(file.size());
  for (std::size_t size = 0; size < file.size(); ++size) {
    const std::vector<std::uint8_t> cut(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(size));
    const Status status = program_status(cut);
    CHECK(status.code() == Code::kFile);
    if (size >= 40) {
      CHECK_CONTAINS(status.message(), " bytes found, ");
    }
  }
  const std::vector<std::uint8_t> cut(file.begin(), file.end() - 1);
  CHECK_CONTAINS(program_status(cut).message(),
                 "truncated: " + std::to_string(file.size() - 1) + " bytes found, " + whole + " promised");
}

// Exporters write complex numbers, which the schema has in a comment.
TEST(program_of_complex_numbers_is_accepted_and_one_of_unknown_types_refused) {
  ProgramRecipe recipe;
  recipe.element_type = 8;  // two halves: as large as a float
  const std::vector<std::uint8_t> file = make_program(recipe);
  const auto program = check_program(file.data(), file.size(), "a.pte");
  CHECK(program.ok());
  const MethodInfo method = method_info(*program.value()->execution_plan()->Get(0));
  CHECK((method.other_types == std::vector<std::string>{"aten::add.out of complex32"}));
  CHECK((method.operators == std::vector<std::string>{"aten::add.out"}));
  CHECK_EQUAL(method.inputs.at(0).kind, "complex32 tensor");
  recipe.element_type = 9;  // two floats: more than was planned
  program_refused(recipe, "value 1 is a constant that is not there");
  for (const int type : {-1, 18, 30, 127}) {
    recipe.element_type = static_cast<std::int8_t>(type);
    program_refused(recipe, "value 0 is a tensor of an unknown element type");
  }
  const std::vector<std::uint8_t> plain = make_program();
  CHECK(method_info(*check_program(plain.data(), plain.size(), "a.pte").value()->execution_plan()->Get(0))
            .other_types.empty());
}

TEST(program_longer_than_it_says_is_accepted) {
  std::vector<std::uint8_t> file = make_program();
  file.resize(file.size() + 100);
  CHECK(program_status(file).ok());
}

TEST(program_of_another_kind_is_named) {
  program_refused(std::vector<std::uint8_t>(), "is empty");
  program_refused(text("PK\x03\x04"), "zip archive");
  program_refused(text("version https://git-lfs.github.com/spec/v1"), "Git LFS pointer");
  program_refused(text("\x7f"
                       "ELF"),
                  "executable");
  program_refused(text("....FT01"), "--data_path");
  program_refused(text("....ET99"), "schema ET99; this runner reads ET12");
  program_refused(text("nothing known"), "identifier is missing");
}

TEST(program_header_that_lies_is_refused) {
  std::vector<std::uint8_t> file = make_program();
  file[12] = 8;
  program_refused(file, "extended header says it is 8 bytes long");
  file = make_program();
  file[23] = 0x7F;  // the program's size, topmost byte
  program_refused(file, "damaged: its header says");
  file = make_program();
  for (std::size_t at = 32; at < 40; ++at) {
    file[at] = 0xFF;  // the segments' size
  }
  program_refused(file, "segments are");
}

TEST(program_tables_are_checked) {
  using Recipe = ProgramRecipe;
  const std::pair<void (*)(Recipe*), const char*> all[] = {
      {[](Recipe* one) { one->output_value = 4; }, "an output is not among its values"},
      {[](Recipe* one) { one->output_value = -1; }, "an output is not among its values"},
      {[](Recipe* one) { one->first_argument = 99; }, "instruction 0"},
      {[](Recipe* one) { one->constant_index = 2; }, "value 1 is a constant that is not there"},
      {[](Recipe* one) { one->planned_bytes = 23; }, "value 3 lies beyond its planned memory"},
      {[](Recipe* one) { one->planned_bytes = -1; }, "method forward: "},
      {[](Recipe* one) { one->dim_order = {0, 0}; }, "order of dimensions"},
      {[](Recipe* one) { one->dim_order = {0, 1, 2}; }, "impossible layout"},
      {[](Recipe* one) { one->segment_bytes = 25; }, "segment 0 lies beyond"},
      {[](Recipe* one) { one->segment_bytes = 23; }, "constant that is not there"},
      {[](Recipe* one) { one->operator_name = ""; }, "operator 0 has no name"}};
  for (const auto& [change, why] : all) {
    Recipe recipe;
    change(&recipe);
    program_refused(recipe, why);
  }
}

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
  const std::uint32_t root = flatbuffers::ReadScalar<std::uint32_t>(file.data());
  file.insert(file.begin() + 8, 40, 0);
  put_number(&file, 0, root + 40, 4);
  const std::size_t flatbuffer = file.size();
  std::memcpy(file.data() + 8, "FH01", 4);
  put_number(&file, 12, 40, 4);
  put_number(&file, 16, 48, 8);
  put_number(&file, 24, flatbuffer - 48, 8);
  file.resize((flatbuffer + 15) / 16 * 16);
  put_number(&file, 32, file.size(), 8);
  put_number(&file, 40, 24, 8);
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

// Two executions of a delegate's call with two operators, and a kernel; before them, the loading.
std::vector<TraceBlock> two_executions() {
  const TraceBlock once = {kExecuteBlock,
                           {{"Add (ND) #1", true, 0, 0, 2'000'000, 3'000'000},
                            {"Add (ND) #2", true, 0, 0, 3'000'000, 5'000'000},
                            {kDelegateCall, false, 0, 0, 1'000'000, 6'000'000},
                            {"native_call_mul.out", false, 0, 1, 6'000'000, 6'500'000},
                            {kOperatorCall, false, 0, 1, 6'000'000, 7'000'000},
                            {kMethodExecute, false, -1, 0, 500'000, 7'500'000}}};
  return {{kLoadBlock, {{kMethodInit, false, -1, 0, 0, 400'000}}}, once, once};
}

TEST(etdump_cut_short_is_refused) {
  const std::vector<std::uint8_t> file = write_etdump(two_executions());
  for (std::size_t size = 0; size < file.size(); size += 8) {
    // A copy, so that a sanitizer sees a read beyond its end.
    const std::vector<std::uint8_t> part(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(size));
    CHECK_EQUAL(read_etdump(part.data(), part.size()).ok(), false);
  }
}

}  // namespace
