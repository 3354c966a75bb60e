#include <set>

#include "base/checksum.h"
#include "check.h"

using namespace slipway;

namespace {

std::pair<std::uint64_t, std::uint64_t> sum_of_bytes(const std::vector<std::uint8_t>& bytes) {
  const Checksum sum = checksum_of(bytes.data(), bytes.size());
  return {sum.first, sum.second};
}

}  // namespace

TEST(checksum_changes_with_every_bit_and_every_length) {
  std::vector<std::uint8_t> bytes;
  for (unsigned i = 0; i < 101; ++i) {
    bytes.push_back(static_cast<std::uint8_t>(i * 37));
  }
  std::set<std::pair<std::uint64_t, std::uint64_t>> seen = {sum_of_bytes(bytes)};
  std::size_t count = 1;
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit, ++count) {
    std::vector<std::uint8_t> other = bytes;
    other[bit / 8] = static_cast<std::uint8_t>(other[bit / 8] ^ (1U << bit % 8));
    seen.insert(sum_of_bytes(other));
  }
  for (std::size_t length = 0; length < bytes.size(); ++length, ++count) {
    seen.insert(sum_of_bytes({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(length)}));
  }
  // Zeros are counted, and so is the order of words.
  for (std::size_t length = 2; length < 80; ++length, ++count) {
    seen.insert(sum_of_bytes(std::vector<std::uint8_t>(length)));
  }
  CHECK_EQUAL(seen.size(), count);
  CHECK(sum_of_bytes({1, 0, 0, 0, 0, 0, 0, 0, 2}) != sum_of_bytes({2, 0, 0, 0, 0, 0, 0, 0, 1}));
}

// A file that another build wrote is read with the same words.
TEST(checksum_stays_as_it_is) {
  const char text[] = "packed weights";
  const Checksum sum = checksum_of(text, sizeof(text) - 1);
  CHECK_EQUAL(sum.first, std::uint64_t{0x6868C592AD0B0431});
  CHECK_EQUAL(sum.second, std::uint64_t{0x75CD85E56E183ACC});
}
