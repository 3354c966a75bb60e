// NumPy's .npy file format (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html).
//
// Read: versions 1.0 to 3.0, C order, little-endian. Written: version 1.0. bfloat16, which NumPy lacks, is
// two-byte void, '|V2', both ways: the bits as they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "slipway/status.h"
#include "slipway/tensor.h"

namespace slipway {

// The tensor in a whole .npy file of `size` bytes; kInput when it is not one. `name` is for the message.
Result<Tensor> parse_npy(const std::uint8_t* data, std::size_t size, const std::string& name);

// The tensor as a whole .npy file.
std::vector<std::uint8_t> format_npy(const Tensor& tensor);

}  // namespace slipway
