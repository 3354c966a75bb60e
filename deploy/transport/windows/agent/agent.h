// The agent: what runs on a Windows device in place of the shell scripts of deploy/scripts.
//
// Windows has no POSIX shell, and what its own shells quote, print and return differs by their version. So a
// small program does there what the scripts do elsewhere, under the same names, with the same words and the
// same answers. It is started as `agent WORDS`, where WORDS are the words in base64url, each ended by a NUL:
// nothing in them means anything to cmd or to PowerShell.
//
// Paths come and go as SFTP has them on Windows: /C:/Users/pi/.slipway.

#pragma once

#include <memory>
#include <string>
#include <vector>

#ifndef UNICODE
#define UNICODE
#endif
#define WIN32_LEAN_AND_MEAN
#include <windows.h>

namespace agent {

using Words = std::vector<std::string>;

constexpr int kFailed = 1;
constexpr int kNotStarted = 126;
constexpr int kEnded = 143;  // as after SIGTERM
constexpr DWORD kShared = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;

struct Close {
  void operator()(HANDLE handle) const { CloseHandle(handle); }
};
using Handle = std::unique_ptr<void, Close>;

// main.cpp: words, texts and streams; the file system; the probe.
int call(const Words& words);
std::wstring wide(const std::string& text);
std::string narrow(const std::wstring& text);
Words split(const std::string& text, char at);
bool starts(const std::string& text, const std::string& with);
unsigned long long number(const std::string& text);  // 0 for what is not one
void say(const std::string& text);
void complain(const std::string& what, const std::string& path);
std::wstring native(const std::string& path);
std::string shown(const std::wstring& path);
Handle open(const std::string& path, DWORD access, DWORD disposition = OPEN_EXISTING, DWORD share = kShared);
bool exists(const std::string& path);
bool is_folder(const std::string& path);
bool is_link(const std::string& path);
bool make_folders(const std::string& path);
bool remove_all(const std::string& path);
bool move_over(const std::string& from, const std::string& to);
std::string read_text(const std::string& path);
bool write(const Handle& file, const std::string& text);
bool write_text(const std::string& path, const std::string& text);
BY_HANDLE_FILE_INFORMATION information(const std::string& path);
long long size_of(const std::string& path);
bool same_file(const std::string& one, const std::string& other);
Words names_in(const std::string& folder);
void look(const std::string& path);
std::string digest(const std::string& path);
bool enter(const std::string& root);
void state(const std::string& part);

// store.cpp: each returns an exit status; the words are those of the script of the same name, and the working
// folder is the root.
int arrange(const Words& words);
int commit(const Words& words);
int discard(const Words& words);
int flip(const Words& words);
int listing(const Words& words);
int resume(const Words& words);
int survey(const Words& words);
int verify(const Words& words);
int lock(const Words& words);

// run.cpp: programs under supervision.
int end(const Words& words);
int run(const Words& words);
int supervise(const Words& words);

}  // namespace agent
