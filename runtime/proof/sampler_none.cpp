#include "sampler.h"

namespace proof {

bool Sampler::Available() {
  return false;
}
Sampler::Sampler() = default;
Sampler::~Sampler() = default;
std::map<std::uintptr_t, unsigned> Sampler::Stop() {
  return {};
}

}  // namespace proof
