// Files under temporary names, for what removes them when the process is ended meanwhile.
#pragma once

namespace slipway {

#ifdef _WIN32
using PathChar = wchar_t;
#else
using PathChar = char;
#endif

// Called with the path before the file is made, and with nullptr when it has its name or is gone. A library
// leaves signals to the program: without this call nothing is watched.
using WatchUnfinished = void (*)(const PathChar* path);
void watch_unfinished_files(WatchUnfinished watch);

// Removes an unfinished file when SIGINT, SIGTERM or SIGHUP, or the console, ends the process: of programs
// that write one file at a time. Handlers are set with the first file.
void remove_unfinished_files();

}  // namespace slipway
