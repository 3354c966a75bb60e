#include <fstream>
#include <set>

#include "base/checksum.h"
#include "check.h"
#include "runner/files/digests.h"
#include "temporary_folder.h"

namespace {

using slipway::digest_files;
using slipway::Digests;

// Several pieces, and a rest.
constexpr std::size_t kLarge = 300001;

std::string content(std::size_t size) {
  std::string text(size, ' ');
  for (std::size_t i = 0; i < size; ++i) {
    text[i] = static_cast<char>(i * i >> 7);
  }
  return text;
}

TEST(a_digest_of_pieces_is_that_of_the_whole) {
  const std::string text = content(1000);
  for (const unsigned piece : {1U, 7U, 63U, 64U, 65U, 100U, 999U}) {
    slipway::Sha256 hash;
    for (std::size_t at = 0; at < text.size(); at += piece) {
      const std::string part = text.substr(at, piece);
      hash.add(part.data(), part.size());
    }
    CHECK_EQUAL(hash.hex(), slipway::sha256_hex(text.data(), text.size()));
  }
}

TEST(files_that_ran_are_digested_where_it_is_cheap) {
  const TemporaryFolder folder;
  const std::string large = folder.file("large"), small = folder.file("small");
  const std::string text = content(kLarge);
  std::ofstream(large, std::ios::binary) << text;
  std::ofstream(small, std::ios::binary) << "abc";
  const Digests all = digest_files({large, small}, INFINITY);
  CHECK_EQUAL(all.files.size(), std::size_t{2});
  CHECK_EQUAL(all.files[0].sha256, slipway::sha256_hex(text.data(), text.size()));
  CHECK_EQUAL(all.files[0].size, std::uint64_t{kLarge});
  CHECK_EQUAL(all.files[1].sha256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  const Digests none = digest_files({small, large}, 1e-9);
  CHECK(none.files.empty());
  CHECK(none.estimate_ms > none.limit_ms);
  CHECK(none.ms > 0);
  CHECK(digest_files({large, folder.file("absent")}, INFINITY).files.empty());
}

std::string digest(const std::string& text) {
  return slipway::sha256_hex(text.data(), text.size());
}

// FIPS 180-4's examples, as NIST publishes them.
TEST(sha256_known_vectors) {
  CHECK_EQUAL(digest(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK_EQUAL(digest("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK_EQUAL(digest("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
              "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK_EQUAL(digest(std::string(1000000, 'a')),
              "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

using namespace slipway;

std::pair<std::uint64_t, std::uint64_t> sum_of_bytes(const std::vector<std::uint8_t>& bytes) {
  const Checksum sum = checksum_of(bytes.data(), bytes.size());
  return {sum.first, sum.second};
}

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

}  // namespace
