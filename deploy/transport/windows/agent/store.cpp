// The store: what deploy/scripts/*.sh of the same names do. There are no symbolic links, which need a right
// on Windows: current/KEY and previous/KEY are small files that name the bundle.

#include "agent.h"

#include <cstdio>
#include <ctime>

namespace agent {

namespace {

constexpr long long kEpoch = 11644473600LL;  // seconds from 1601, where Windows begins, to 1970
const char* const kFolders[] = {"incoming", "runs", "bundles", "programs", "store", "weights", "lock"};

bool starts(const std::string& text, const std::string& with) {
  return text.rfind(with, 0) == 0;
}

bool ends(const std::string& text, const std::string& with) {
  return text.size() >= with.size() && text.compare(text.size() - with.size(), with.size(), with) == 0;
}

std::string above(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

std::string part_of(const std::string& sha256, const std::string& owner) {
  return "incoming/" + sha256 + "." + owner + ".part";
}

std::string pointed(const std::string& link) {
  std::string found;
  read_text(link, &found);
  return found.substr(0, found.find('\n'));
}

// The rows of a manifest: the digest, and the path below the manifest's folder.
std::vector<std::pair<std::string, std::string>> sums(const std::string& folder) {
  std::vector<std::pair<std::string, std::string>> found;
  std::FILE* file = _wfopen(native(folder + "/SHA256SUMS").c_str(), L"rb");
  if (file == nullptr) {
    return found;
  }
  std::string text;
  char piece[4096];
  for (size_t count = 0; (count = std::fread(piece, 1, sizeof piece, file)) > 0;) {
    text.append(piece, count);
  }
  std::fclose(file);
  for (const std::string& line : split(text, '\n')) {
    if (line.size() > 66) {
      found.emplace_back(line.substr(0, 64), line.substr(66));
    }
  }
  return found;
}

long long changed(const std::string& path) {
  WIN32_FILE_ATTRIBUTE_DATA found;
  if (GetFileAttributesExW(native(path).c_str(), GetFileExInfoStandard, &found) == 0) {
    return 0;
  }
  const auto ticks = static_cast<long long>(found.ftLastWriteTime.dwHighDateTime) << 32 |
                     found.ftLastWriteTime.dwLowDateTime;
  return ticks / 10000000 - kEpoch;
}

unsigned long links(const std::string& path) {
  const HANDLE file = CreateFileW(native(path).c_str(), FILE_READ_ATTRIBUTES,
                                  FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, nullptr,
                                  OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS, nullptr);
  BY_HANDLE_FILE_INFORMATION found = {};
  if (file != INVALID_HANDLE_VALUE) {
    GetFileInformationByHandle(file, &found);
    CloseHandle(file);
  }
  return found.nNumberOfLinks;
}

void print_row(const std::string& path) {
  if (is_folder(path)) {
    say("folder 0 " + std::to_string(changed(path)) + " 0 " + path);
  } else {
    say("file " + std::to_string(size_of(path)) + " " + std::to_string(changed(path)) + " " +
        std::to_string(links(path)) + " " + path);
  }
}

long long usage(const std::string& folder) {
  long long total = 0;
  for (const std::string& name : names_in(folder)) {
    const std::string path = folder + "/" + name;
    if (is_folder(path) && !is_link(path)) {
      total += usage(path);
    } else {
      // A file with several names counts once, as du has it.
      total += size_of(path) / static_cast<long long>(links(path) > 0 ? links(path) : 1);
    }
  }
  return total;
}

void touch(const std::string& path) {
  const HANDLE file = CreateFileW(native(path).c_str(), FILE_WRITE_ATTRIBUTES,
                                  FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, nullptr,
                                  OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS, nullptr);
  if (file != INVALID_HANDLE_VALUE) {
    FILETIME now;
    GetSystemTimeAsFileTime(&now);
    SetFileTime(file, nullptr, nullptr, &now);
    CloseHandle(file);
  }
}

bool merge(const std::string& part, const std::string& final) {
  for (const auto& [sha256, name] : sums(part)) {
    const std::string to = final + "/" + name;
    if (!make_folders(above(to))) {
      return false;
    }
    // A program that runs cannot be replaced on Windows; another deploy may be running this very file.
    if (!same_file(part + "/" + name, to) && !move_over(part + "/" + name, to) && digest(to) != sha256) {
      complain("replacing", to);
      return false;
    }
  }
  return move_over(part + "/SHA256SUMS", final + "/SHA256SUMS");
}

}  // namespace

bool enter(const std::string& root) {
  return SetCurrentDirectoryW(native(root).c_str()) != 0;
}

void print_survey(const Words& names) {
  for (const std::string& name : names) {
    if (ends(name, "/")) {
      for (const std::string& each : names_in(name.substr(0, name.size() - 1))) {
        look(name + each);
      }
    } else {
      look(name);
    }
  }
  for (const char* folder : {"incoming", "runs", "bundles", "programs", "weights"}) {
    for (const std::string& name : names_in(folder)) {
      const bool part = ends(name, ".part") || ends(name, ".tmp");
      if (part || std::string(folder) == "runs") {
        say(std::string("leftover ") + folder + "/" + name);
      }
    }
  }
  for (const std::string& key : names_in("current")) {
    if (!ends(key, ".part")) {
      say("current/" + key + " " + pointed("current/" + key));
    }
  }
}

int survey(const Words& words) {
  if (!enter(words[0])) {
    return 0;
  }
  print_survey(Words(words.begin() + 1, words.end()));
  say("usage " + std::to_string((usage(".") + 1023) / 1024) + " .");
  return 0;
}

void discard_names(const Words& names) {
  for (const std::string& name : names) {
    bool ours = name.find("..") == std::string::npos && name.find('\\') == std::string::npos &&
                name.find(':') == std::string::npos;
    bool below = false;
    for (const char* folder : kFolders) {
      below =
          below || (starts(name, std::string(folder) + "/") && name.size() > std::string(folder).size() + 1);
    }
    ours = ours && below && (!starts(name, "store/") || hex(name.substr(6)));
    if (ours) {
      remove_all(name);  // a program of a run ends with its supervisor, by Windows' own job objects
    }
  }
}

int discard(const Words& words) {
  if (enter(words[0])) {
    discard_names(Words(words.begin() + 1, words.end()));
  }
  return 0;
}

int commit(const Words& words) {
  if (!enter(words[0])) {
    return kFailed;
  }
  for (size_t i = 3; i + 1 < words.size(); i += 2) {
    const std::string& sha256 = words[i];
    const std::string part = part_of(sha256, words[1]);
    if (!sync_file(part)) {
      complain("reading", part);
      return kFailed;
    }
    const std::string got = words[2] == "yes" ? sha256 : digest(part);
    if (got == sha256) {
      if (!move_over(part, "store/" + sha256)) {
        complain("renaming", part);
        return kFailed;
      }
    } else if (got != "unable") {
      remove_all(part);
    }
    say(sha256 + " " + got);
  }
  return 0;
}

int resume(const Words& words) {
  if (!enter(words[0])) {
    return kFailed;
  }
  for (size_t i = 2; i + 1 < words.size(); i += 2) {
    const std::string mine = part_of(words[i], words[1]);
    const long long most = digits(words[i + 1]) ? std::stoll(words[i + 1]) : 0;
    long long best = 0;
    for (const std::string& name : names_in("incoming")) {
      const std::string part = "incoming/" + name;
      if (!starts(name, words[i] + ".") || !ends(name, ".part") || is_link(part)) {
        continue;
      }
      const long long size = size_of(part);
      if (size > best && size <= most) {
        best = size;
        if (part != mine && !move_over(part, mine)) {
          return kFailed;
        }
      } else if (part != mine) {
        remove_all(part);
      }
    }
    if (best > 0) {
      say(words[i] + " " + std::to_string(best) + " " + digest(mine));
    }
  }
  return 0;
}

int arrange(const Words& words) {
  if (!enter(words[0])) {
    return kFailed;
  }
  const std::string &final = words[1], &part = words[2];
  if (words[3] == "yes") {
    remove_all(part);
    if (!make_folders(part)) {
      return kFailed;
    }
  }
  std::string rows;
  bool good = true;
  for (size_t i = 5; good && i + 2 < words.size(); i += 3) {
    const std::string from = "store/" + words[i], to = part + "/" + words[i + 1];
    good =
        make_folders(above(to)) && (CreateHardLinkW(native(to).c_str(), native(from).c_str(), nullptr) != 0 ||
                                    CopyFileW(native(from).c_str(), native(to).c_str(), TRUE) != 0);
    if (!good) {
      complain("linking", to);
    }
    rows += words[i] + "  " + words[i + 1] + "\n";
  }
  std::FILE* file = good ? _wfopen(native(part + "/SHA256SUMS").c_str(), L"ab") : nullptr;
  if (file != nullptr) {
    good = std::fwrite(rows.data(), 1, rows.size(), file) == rows.size();
    good = std::fclose(file) == 0 && good;
  }
  if (good && file != nullptr && words[4] != "yes") {
    return 0;
  }
  good = good && file != nullptr && (is_folder(final) ? merge(part, final) : move_over(part, final));
  if (!good) {
    complain("arranging", final);
  }
  remove_all(part);
  if (!good) {
    return kFailed;
  }
  for (const auto& [sha256, name] : sums(final)) {
    if (same_file(final + "/" + name, "store/" + sha256)) {
      look(final + "/" + name);
    }
  }
  return 0;
}

int verify(const Words& words) {
  if (!enter(words[0])) {
    return kFailed;
  }
  const Words names(words.begin() + 1, words.end());
  for (const std::string& name : names) {
    look(name);
  }
  for (const std::string& name : names) {
    if (exists(name) && !is_folder(name) && !is_link(name)) {
      say("digest " + digest(name) + " " + name);
    }
  }
  return 0;
}

int flip(const Words& words) {
  if (!enter(words[0]) || !make_folders("current") || !make_folders("previous")) {
    return kFailed;
  }
  const std::string current = "current/" + words[1], wanted = "../bundles/" + words[2],
                    now = pointed(current);
  if (now == wanted) {
    return 0;
  }
  touch(wanted.substr(3));
  if (!now.empty() && !write_text("previous/" + words[1], now + "\n")) {
    return kFailed;
  }
  return write_text(current, wanted + "\n") ? 0 : kFailed;
}

int rollback(const Words& words) {
  const std::string current = "current/" + words[1], previous = "previous/" + words[1];
  const std::string now = enter(words[0]) ? pointed(current) : "",
                    before = now.empty() ? "" : pointed(previous);
  if (!starts(before, "../bundles/") || before == now) {
    say("none");
    return 0;
  }
  const std::string folder = before.substr(3);
  std::string damage;
  for (const auto& [sha256, name] : sums(folder)) {
    if (digest(folder + "/" + name) != sha256) {
      damage += "\n" + name + ": FAILED";
    }
  }
  if (!damage.empty() || sums(folder).empty()) {
    say("damaged" + damage);
    return 0;
  }
  if (!write_text(current, before + "\n") || !write_text(previous, now + "\n")) {
    return kFailed;
  }
  say("now " + before.substr(11) + " " + now.substr(11));
  return 0;
}

int holdings(const Words& words) {
  if (!enter(words[0])) {
    return kFailed;
  }
  for (const std::string& name : names_in("store")) {
    say("of " + name + " store/" + name);
  }
  for (const char* kind : {"bundles", "programs"}) {
    for (const std::string& name : names_in(kind)) {
      const std::string folder = std::string(kind) + "/" + name;
      for (const auto& [sha256, file] : sums(folder)) {
        say("of " + sha256 + " " + folder + "/" + file);
      }
    }
  }
  return 0;
}

int listing(const Words& words) {
  if (!enter(words[0])) {
    return 0;
  }
  say("now " + std::to_string(static_cast<long long>(std::time(nullptr))));
  for (const char* kind : {"current", "previous"}) {
    for (const std::string& key : names_in(kind)) {
      const std::string link = std::string(kind) + "/" + key;
      say("link " + link + " " + pointed(link));
    }
  }
  for (const char* kind : {"store", "incoming", "weights", "runs", "bundles", "programs"}) {
    for (const std::string& name : names_in(kind)) {
      print_row(std::string(kind) + "/" + name);
    }
  }
  for (const char* kind : {"bundles", "programs"}) {
    for (const std::string& name : names_in(kind)) {
      const std::string folder = std::string(kind) + "/" + name;
      if (exists(folder + "/SHA256SUMS")) {
        say("of " + folder);
        for (const auto& row : sums(folder)) {
          say(row.first);
        }
      }
    }
  }
  return 0;
}

int keep(const Words& words) {
  if (!enter(words[0] + "/runs")) {
    return kFailed;
  }
  const std::string kept = "kept-" + words[1];
  return move_over(words[1], kept) && write_text(kept + "/program.txt", words[2] + "\n") ? 0 : kFailed;
}

// No earlier version made a root on Windows: whatever is there is somebody else's.
int adopt(const Words& words) {
  if (!enter(words[0])) {
    return kFailed;
  }
  for (const std::string& name : names_in(".")) {
    say("foreign " + name);
  }
  return 0;
}

}  // namespace agent
