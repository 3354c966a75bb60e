#include <fstream>

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

}  // namespace
