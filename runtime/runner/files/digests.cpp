#include "runner/files/digests.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/platform.h"
#include "runner/measure.h"

namespace slipway {
std::vector<FileDigest> digest_files(const std::vector<std::string>& paths, double limit_ms) {
  // Bytes between two looks at the clock: a slow processor of today takes 0.3 ms for them.
  constexpr std::size_t kPiece = std::size_t{16} * 1024;
  const auto start = std::chrono::steady_clock::now();
  std::vector<MappedFile> files;
  double all = 0;
  for (const std::string& path : paths) {
    Result<MappedFile> file = MappedFile::open(path);
    if (!file.ok()) {
      return {};
    }
    all += static_cast<double>(file.value().size());
    files.push_back(std::move(file.value()));
  }
  std::vector<FileDigest> found;
  double done = 0;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const MappedFile& file = files[i];
    Sha256 hash;
    for (std::size_t at = 0; at < file.size(); at += kPiece) {
      const std::size_t size = std::min(kPiece, file.size() - at);
      hash.add(file.data() + at, size);
      done += static_cast<double>(size);
      if (done < all && milliseconds_since(start) * all / done > limit_ms) {
        return {};
      }
    }
    found.push_back({paths[i], file.size(), hash.hex()});
  }
  return found;
}

namespace {

constexpr std::uint32_t kRound[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

constexpr std::uint32_t rotate(std::uint32_t value, unsigned bits) {
  return (value >> bits) | (value << (32 - bits));
}

using State = std::array<std::uint32_t, 8>;

// One round. The eight words' names move on from call to call: moving the words costs more than the round.
inline void step(std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t& d, std::uint32_t e,
                 std::uint32_t f, std::uint32_t g, std::uint32_t& h, std::uint32_t word) {
  h += (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) + ((e & f) ^ (~e & g)) + word;
  d += h;
  h += (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
}

void absorb(State* state, const std::uint8_t block[64]) {
  std::uint32_t w[64];
  for (unsigned i = 0; i < 16; ++i) {
    const std::uint8_t* p = block + std::size_t{4} * i;
    w[i] = (std::uint32_t{p[0]} << 24) | (std::uint32_t{p[1]} << 16) | (std::uint32_t{p[2]} << 8) |
           std::uint32_t{p[3]};
  }
  for (unsigned i = 16; i < 64; ++i) {
    const std::uint32_t s0 = rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ (w[i - 15] >> 3);
    const std::uint32_t s1 = rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ (w[i - 2] >> 10);
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = *state;
  for (unsigned i = 0; i < 64; i += 8) {
    step(a, b, c, d, e, f, g, h, kRound[i] + w[i]);
    step(h, a, b, c, d, e, f, g, kRound[i + 1] + w[i + 1]);
    step(g, h, a, b, c, d, e, f, kRound[i + 2] + w[i + 2]);
    step(f, g, h, a, b, c, d, e, kRound[i + 3] + w[i + 3]);
    step(e, f, g, h, a, b, c, d, kRound[i + 4] + w[i + 4]);
    step(d, e, f, g, h, a, b, c, kRound[i + 5] + w[i + 5]);
    step(c, d, e, f, g, h, a, b, kRound[i + 6] + w[i + 6]);
    step(b, c, d, e, f, g, h, a, kRound[i + 7] + w[i + 7]);
  }
  const State added = {a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < state->size(); ++i) {
    (*state)[i] += added[i];
  }
}

}  // namespace

void Sha256::add(const void* data, std::size_t size) {
  const auto* next = static_cast<const std::uint8_t*>(data);
  std::size_t had = size_ % 64;
  size_ += size;
  if (had != 0) {
    const std::size_t fits = std::min(size, 64 - had);
    std::memcpy(rest_.data() + had, next, fits);
    next += fits;
    size -= fits;
    had += fits;
    if (had < 64) {
      return;
    }
    absorb(&state_, rest_.data());
  }
  for (; size >= 64; size -= 64, next += 64) {
    absorb(&state_, next);
  }
  if (size != 0) {
    std::memcpy(rest_.data(), next, size);
  }
}

std::string Sha256::hex() {
  const std::size_t left = size_ % 64;
  std::uint8_t tail[128] = {};
  std::memcpy(tail, rest_.data(), left);
  tail[left] = 0x80;
  const std::size_t blocks = left < 56 ? 1 : 2;
  const std::uint64_t bits = size_ * 8;
  for (unsigned i = 0; i < 8; ++i) {
    tail[blocks * 64 - 1 - i] = static_cast<std::uint8_t>(bits >> (8 * i));
  }
  for (std::size_t block = 0; block < blocks; ++block) {
    absorb(&state_, tail + 64 * block);
  }
  std::string text;
  text.reserve(64);
  for (const std::uint32_t word : state_) {
    for (int shift = 28; shift >= 0; shift -= 4) {
      text += "0123456789abcdef"[(word >> shift) & 15U];
    }
  }
  return text;
}

std::string sha256_hex(const void* data, std::size_t size) {
  Sha256 hash;
  hash.add(data, size);
  return hash.hex();
}

}  // namespace slipway
