// Everyday C++17, wide rather than deep: what of the standard library a program meets that was not written
// for old systems. It must link against, and run with, the libstdc++ of GCC 8.

#include <algorithm>
#include <any>
#include <atomic>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <regex>
#include <set>
#include <shared_mutex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <variant>
#include <vector>

static std::string strings() {
  std::string text("abc");
  std::string_view view = text;
  std::string copy(view);
  copy.data()[0] = 'x';
  copy.reserve(100);
  copy.insert(copy.cbegin(), {'1', '2'});
  copy += view;
  std::ostringstream out;
  out << copy << 1.5 << nullptr;
  std::istringstream in("20 22");
  int a = 0, b = 0;
  in >> a >> b;
  std::stringstream both;
  both << a + b << ' ' << out.str().substr(0, 8);
  return both.str();
}

static std::string errors() {
  try {
    std::runtime_error first("first");
    std::runtime_error moved(std::move(first));
    moved = std::runtime_error("second");
    std::logic_error other(std::logic_error("third"));
    throw moved;
  } catch (const std::exception& error) {
    return error.what();
  }
}

static bool threads() {
  std::mutex mutex;
  std::condition_variable ready;
  std::atomic<int> count{0};
  bool done = false;
  std::thread thread([&] {
    std::lock_guard<std::mutex> lock(mutex);
    done = true;
    ++count;
    ready.notify_one();
  });
  {
    std::unique_lock<std::mutex> lock(mutex);
    ready.wait_for(lock, std::chrono::seconds(30), [&] { return done; });
    ready.wait(lock, [&] { return done; });
  }
  thread.join();
  std::timed_mutex timed;
  std::shared_mutex shared;
  std::shared_lock<std::shared_mutex> reader(shared);
  std::once_flag once;
  std::call_once(once, [&] { ++count; });
  return timed.try_lock_for(std::chrono::milliseconds(1)) && count == 2;
}

static size_t containers(int size) {
  auto numbers = std::make_shared<std::vector<int>>(static_cast<size_t>(size));
  std::map<std::string, int> sorted{{"a", 1}};
  std::unordered_map<std::string, std::string> hashed{{"a", "b"}};
  std::set<int> set{1, 2};
  std::deque<int> deque(5);
  std::sort(deque.begin(), deque.end());
  std::variant<int, std::string> either = std::string("q");
  std::any anything = 5;
  std::optional<std::string> maybe = "z";
  std::function<size_t()> sum = [&] { return numbers->size() + sorted.size() + hashed.size() + set.size(); };
  std::unique_ptr<std::string[]> array(new std::string[static_cast<size_t>(size)]);
  return sum() + std::get<std::string>(either).size() + maybe->size() + (std::any_cast<int>(anything) == 5);
}

static bool numbers() {
  const char text[] = "42";
  int value = 0;
  std::from_chars(text, text + 2, value);
  char buffer[8];
  const bool printed = std::to_chars(buffer, buffer + 8, value).ptr == buffer + 2;
  std::mt19937 generator(1);
  std::uniform_real_distribution<> uniform;
  std::random_device device;
  (void)device();
  return printed && value == 42 && uniform(generator) < 1;
}

int main(int argc, char** argv) {
  std::ifstream self(argv[0], std::ios::binary);
  self.seekg(0, std::ios::end);
  std::cout << strings() << '\n'
            << errors() << '\n'
            << std::regex_replace("caat", std::regex("a+"), "o") << '\n'
            << threads() << numbers() << (self.tellg() > 0) << ' ' << containers(argc + 9) << std::endl;
}
