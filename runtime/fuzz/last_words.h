// What a crashing process says about where it was, for those who look at a sweep's findings.
#pragma once

namespace slipway::fuzz {

// From now on a signal that ends the process prints itself and the calls that led there to standard error.
// Under sanitizers they do that themselves.
void keep_last_words();

}  // namespace slipway::fuzz
