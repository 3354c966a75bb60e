// The root's owner, and the lock of the device.
//
// The lock is an open file that Windows shares with nobody who writes. It is free as soon as its holder's
// process is gone, however that ended. The file says who the holder is, and counts its beats, which come from
// the other side: a contender that saw the same beat for long enough ends a holder whose connection hangs.

#include "agent.h"

#include <aclapi.h>

#include <cstdio>

namespace agent {

namespace {

constexpr char kMarker[] = ".slipway-root";
constexpr char kHolder[] = "lock/holder";
const char* const kFolders[] = {"lock", "incoming", "store",    "bundles", "programs",
                                "runs", "current",  "previous", "weights"};
constexpr DWORD kChanges = FILE_ADD_FILE | FILE_ADD_SUBDIRECTORY | FILE_DELETE_CHILD | DELETE | WRITE_DAC |
                           WRITE_OWNER | GENERIC_WRITE | GENERIC_ALL;
constexpr int kPatience = 30;  // tenths of a second for a process that was ended

int refused(const std::string& why, const std::string& path) {
  say("refused " + why + "\n" + path);
  return 0;
}

bool is(PSID sid, WELL_KNOWN_SID_TYPE kind) {
  return IsWellKnownSid(sid, kind) != 0;
}

bool is_own(PSID owner) {
  HANDLE token = nullptr;
  if (OpenProcessToken(GetCurrentProcess(), TOKEN_QUERY, &token) == 0) {
    return false;
  }
  alignas(TOKEN_USER) unsigned char space[256];
  DWORD size = 0;
  const bool read = GetTokenInformation(token, TokenUser, space, sizeof space, &size) != 0;
  CloseHandle(token);
  // What an administrator makes belongs to the administrators.
  return (read && EqualSid(owner, reinterpret_cast<TOKEN_USER*>(space)->User.Sid) != 0) ||
         is(owner, WinBuiltinAdministratorsSid) || is(owner, WinLocalSystemSid);
}

// Why others could change a folder: owner, open, unseen; empty if they cannot.
std::string exposure(const std::string& folder) {
  PSID owner = nullptr;
  PACL list = nullptr;
  PSECURITY_DESCRIPTOR descriptor = nullptr;
  std::wstring name = native(folder);
  const DWORD wanted = OWNER_SECURITY_INFORMATION | DACL_SECURITY_INFORMATION;
  if (GetNamedSecurityInfoW(name.data(), SE_FILE_OBJECT, wanted, &owner, nullptr, &list, nullptr,
                            &descriptor) != 0) {
    return "unseen";
  }
  std::string why = is_own(owner) ? list == nullptr ? "open" : "" : "owner";
  for (DWORD i = 0; why.empty() && i < list->AceCount; ++i) {
    void* entry = nullptr;
    if (GetAce(list, i, &entry) == 0) {
      continue;
    }
    const auto* ace = static_cast<ACCESS_ALLOWED_ACE*>(entry);
    const bool counts = ace->Header.AceType == ACCESS_ALLOWED_ACE_TYPE &&
                        (ace->Header.AceFlags & INHERIT_ONLY_ACE) == 0 && (ace->Mask & kChanges) != 0;
    const auto sid = const_cast<PSID>(static_cast<const void*>(&ace->SidStart));
    if (counts && (is(sid, WinWorldSid) || is(sid, WinAuthenticatedUserSid) || is(sid, WinBuiltinUsersSid))) {
      why = "open";
    }
  }
  LocalFree(descriptor);
  return why;
}

// Makes the mark, unless it is there: of two sessions that make a root at the same time one makes it.
bool mark(const std::string& text) {
  const HANDLE file = CreateFileW(native(kMarker).c_str(), GENERIC_WRITE, 0, nullptr, CREATE_NEW,
                                  FILE_ATTRIBUTE_NORMAL, nullptr);
  if (file == INVALID_HANDLE_VALUE) {
    const DWORD error = GetLastError();
    return error == ERROR_FILE_EXISTS || error == ERROR_SHARING_VIOLATION;
  }
  DWORD count = 0;
  const bool good = WriteFile(file, text.data(), static_cast<DWORD>(text.size()), &count, nullptr) != 0 &&
                    count == text.size() && FlushFileBuffers(file) != 0;
  CloseHandle(file);
  return good;
}

enum class Claim { kGood, kOver };

// Makes the root the working folder if it is ours; else says why not. Leaves the mark's id in *id.
Claim claim(const std::string& root, const std::string& fresh, bool make, std::string* id) {
  const auto over = [](const std::string& why, const std::string& path) {
    refused(why, path);
    return Claim::kOver;
  };
  if (root.empty() || root[0] != '/') {
    return over("home", "");
  }
  if (is_link(root)) {
    return over("link", root);
  }
  if (!is_folder(root)) {
    if (!make) {
      say("absent");
      return Claim::kOver;
    }
    if (!make_folders(root)) {
      std::exit(kFailed);
    }
  }
  if (!enter(root)) {
    return over("unseen", root);
  }
  if (const std::string why = exposure(root); !why.empty()) {
    return over(why, root);
  }
  for (const char* name : kFolders) {
    if (is_link(name) || (exists(name) && !is_folder(name))) {
      return over(is_link(name) ? "link" : "kind", root + "/" + name);
    }
  }
  if (is_link(kMarker) || is_folder(kMarker)) {
    return over("kind", root + "/" + kMarker);
  }
  std::string text;
  if (!exists(kMarker)) {
    if (!names_in(".").empty() && !exists(kMarker)) {
      return over("unmarked", root);
    }
    if (!make) {
      say("absent");
      return Claim::kOver;
    }
    if (!mark("slipway-root 1 " + fresh + "\n")) {
      complain("marking", root);
      std::exit(kFailed);
    }
  }
  // The other session may be about to write the mark.
  for (int i = 0; i < kPatience && (!read_text(kMarker, &text) || text.empty()); ++i) {
    Sleep(100);
  }
  // A mark that stays empty is one that a power cut or a full disk caught.
  if (text.empty()) {
    text = "slipway-root 1 " + fresh + "\n";
    if (!write_text(kMarker, text)) {
      std::exit(kFailed);
    }
  }
  const Words words = split(text.substr(0, text.find('\n')), ' ');
  if (words.size() != 3 || words[0] != "slipway-root" || words[1] != "1") {
    return over("marker", root + "/" + kMarker);
  }
  *id = words[2];
  return Claim::kGood;
}

bool make_layout() {
  for (const char* name : kFolders) {
    if (!make_folders(name)) {
      return false;
    }
  }
  return true;
}

HANDLE take(DWORD* error) {
  const HANDLE file = CreateFileW(native(kHolder).c_str(), GENERIC_WRITE, FILE_SHARE_READ, nullptr,
                                  OPEN_ALWAYS, FILE_ATTRIBUTE_NORMAL, nullptr);
  *error = GetLastError();
  return file;
}

std::string program_of(HANDLE process) {
  wchar_t path[MAX_PATH];
  DWORD size = MAX_PATH;
  return QueryFullProcessImageNameW(process, 0, path, &size) != 0 ? narrow(std::wstring(path, size)) : "";
}

// Ends the holder, if the process with its number is one of this very program.
void end_holder(const std::string& number) {
  const DWORD pid = digits(number) ? static_cast<DWORD>(std::stoul(number)) : 0;
  const HANDLE process = OpenProcess(PROCESS_TERMINATE | PROCESS_QUERY_LIMITED_INFORMATION, FALSE, pid);
  if (process == nullptr) {
    return;
  }
  if (program_of(process) == program_of(GetCurrentProcess())) {
    TerminateProcess(process, kEnded);
  }
  CloseHandle(process);
}

bool note(HANDLE file, const std::string& generation, unsigned long long beat, const std::string& who) {
  const std::string text = generation + "\n" + std::to_string(beat) + "\n" +
                           std::to_string(GetCurrentProcessId()) + "\n" + who + "\n";
  DWORD count = 0;
  SetFilePointer(file, 0, nullptr, FILE_BEGIN);
  return WriteFile(file, text.data(), static_cast<DWORD>(text.size()), &count, nullptr) != 0 &&
         count == text.size() && SetEndOfFile(file) != 0;
}

}  // namespace

int prepare(const Words& words) {
  std::string id;
  if (claim(words[0], words[1], true, &id) == Claim::kOver) {
    return 0;
  }
  return make_layout() ? 0 : kFailed;
}

// The words are root, owner, who, stale, make, id, and names for the survey.
int lock(const Words& words) {
  const std::string &owner = words[1], &who = words[2], &stale = words[3];
  std::string id;
  if (claim(words[0], words[5], words[4] == "yes", &id) == Claim::kOver) {
    return 0;
  }
  if (!make_layout()) {
    return kFailed;
  }
  DWORD error = 0;
  HANDLE file = take(&error);
  std::string text;
  read_text(kHolder, &text);
  Words told = split(text, '\n');
  told.resize(5);
  if (file == INVALID_HANDLE_VALUE && stale == told[0] + ":" + told[1]) {
    end_holder(told[2]);
    for (int i = 0; i < kPatience && file == INVALID_HANDLE_VALUE; ++i) {
      Sleep(100);
      file = take(&error);
    }
  }
  if (file == INVALID_HANDLE_VALUE) {
    if (error != ERROR_SHARING_VIOLATION) {
      SetLastError(error);
      complain("locking", kHolder);
      return kFailed;
    }
    // A holder that was just made has written nothing yet.
    say("busy " + (digits(told[0]) ? told[0] : "0") + ":" + told[1] + "\n" + told[3]);
    return 0;
  }
  const std::string mine = std::to_string((digits(told[0]) ? std::stoull(told[0]) : 0) + 1);
  unsigned long long beat = 1;
  if (!note(file, mine, beat, who)) {
    complain("writing", kHolder);
    return kFailed;
  }
  say("acquired " + mine + " " + id);
  print_survey(Words(words.begin() + 6, words.end()));
  say("ready");
  std::fflush(stdout);
  char line[16];
  DWORD count = 0;
  const HANDLE input = GetStdHandle(STD_INPUT_HANDLE);
  while (ReadFile(input, line, sizeof line, &count, nullptr) != 0 && count > 0) {
    note(file, mine, ++beat, who);
  }
  discard_names({"runs/" + owner});
  CloseHandle(file);
  return 0;
}

}  // namespace agent
