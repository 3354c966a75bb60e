#include "check.h"
#include "etdump.h"

namespace {

using namespace slipway;

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

TEST(etdump_rows_say_where_the_time_went) {
  const std::vector<ProfileRow> rows = rows_of(two_executions(), 2);
  std::string text;
  double total = 0;
  for (const ProfileRow& row : rows) {
    text += row.name + "|" + row.op + "|" + row.provider + "|" + std::to_string(row.count) + "|" +
            std::to_string(row.total_ms).substr(0, 3) + "\n";
    total += row.total_ms;
  }
  CHECK_EQUAL(text,
              "Add (ND) #2 @0|Add (ND)|XnnpackBackend|2|4.0\n"
              "DELEGATE_CALL @0|around the delegate's operators|runtime|2|4.0\n"
              "Add (ND) #1 @0|Add (ND)|XnnpackBackend|2|2.0\n"
              "Method::execute|around the instructions|runtime|2|2.0\n"
              "mul.out @1|mul.out|portable|2|2.0\n");
  CHECK_EQUAL(total, 14.0);
}

}  // namespace
