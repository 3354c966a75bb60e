// A session's text kept for later: what the model remembers of it, where it stands, and its scores.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/checksum.h"
#include "base/platform.h"
#include "slipway/status.h"
#include "text/session.h"

namespace slipway {

// Memory in which an execution leaves for the next one what it remembers: address and bytes.
using StateMemory = std::vector<std::pair<std::uint8_t*, std::size_t>>;

// The parts of the file, one after the other; zeros at the end of each memory are left out. They lie in the
// memory, in the session and in `head`. `owner`: of the program and the method, which restore_text compares.
std::vector<FilePart> save_text(const TextSession& session, const StateMemory& memory, const Checksum& owner,
                                std::vector<std::uint64_t>* head);

// Checks all of it first: memory and session are as they were where it fails. kFile when it is no saved text
// or damaged, kInput when it is another program's. `name` is what messages call it.
Status restore_text(const std::uint8_t* data, std::size_t size, const std::string& name,
                    const Checksum& owner, const StateMemory& memory, TextSession* session);

}  // namespace slipway
