#include <fstream>
#include <set>

#include "base/checksum.h"
#include "check.h"
#include "runner/files/digests.h"
#include "runner/files/sha256.h"
#include "runner/options.h"
#include "runner/report/report.h"
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

TEST(files_beside_a_program) {
  CHECK(slipway::beside("a/b.onnx", {"w", "v"}) == (std::vector<std::string>{"a/w", "a/v"}));
  CHECK(slipway::beside("b.onnx", {"w"}) == std::vector<std::string>{"w"});
}

TEST(when_to_digest) {
  const auto wish = [](const std::string& word) {
    return slipway::parse_options({"--model_path=a.pte", "--digests=" + word});
  };
  CHECK(slipway::parse_options({"--model_path=a.pte"}).value().digests == slipway::DigestWish::kCheap);
  CHECK(wish("always").value().digests == slipway::DigestWish::kAlways);
  CHECK(wish("never").value().digests == slipway::DigestWish::kNever);
  CHECK(!wish("sometimes").ok());
}

TEST(a_result_says_which_files_were_read) {
  slipway::RunReport report;
  report.measured.latencies_ms = {1};
  CHECK(slipway::run_json(report).find("digests") == std::string::npos);
  report.digests = Digests{{{"a.pte", 3, "ba78"}}, 1.5, 1.5, INFINITY};
  CHECK(slipway::run_json(report).find("\"digests\":{\"files\":[{\"path\":\"a.pte\",\"size\":3,\"sha256\":"
                                       "\"ba78\"}],\"ms\":1.500000,\"estimate_ms\":1.500000,\"limit_ms\":"
                                       "null}") != std::string::npos);
  CHECK(slipway::run_text(report).find("sha256 ba78  a.pte\n") != std::string::npos);
  report.digests = Digests{{}, 1, 35, 6};
  CHECK(slipway::run_text(report).find("left out: 35.0 ms") != std::string::npos);
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

// Lengths around those at which the padding needs a block of its own (values from Python's hashlib).
TEST(sha256_padding) {
  CHECK_EQUAL(digest(std::string(55, 'x')),
              "d5e285683cd4efc02d021a5c62014694958901005d6f71e89e0989fac77e4072");
  CHECK_EQUAL(digest(std::string(56, 'x')),
              "04c26261370ee7541549d16dee320c723e3fd14671e66a099afe0a377c16888e");
  CHECK_EQUAL(digest(std::string(63, 'x')),
              "75220b47218278e656f2013bb8f0c455a25eaf01e86c64924e9d48d89776d6f2");
  CHECK_EQUAL(digest(std::string(64, 'x')),
              "7ce100971f64e7001e8fe5a51973ecdfe1ced42befe7ee8d5fd6219506b5393c");
  CHECK_EQUAL(digest(std::string(119, 'x')),
              "000b48d4edf0fa7bee3c6236ecd2785baa5db4eeb8bb54341b029e0d9fa5fb0c");
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

// A file that another build wrote is read with the same words.
TEST(checksum_stays_as_it_is) {
  const char text[] = "packed weights";
  const Checksum sum = checksum_of(text, sizeof(text) - 1);
  CHECK_EQUAL(sum.first, std::uint64_t{0x6868C592AD0B0431});
  CHECK_EQUAL(sum.second, std::uint64_t{0x75CD85E56E183ACC});
}

}  // namespace
