// Everyday C++ that needs a whole run-time library: streams, threads, exceptions across threads, thread-local
// data.
#include <condition_variable>
#include <exception>
#include <iostream>
#include <map>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

extern "C" int answer(void);
extern "C" double floor_mean(const float* values, int count);

namespace {

thread_local int here = 0;

struct Registered {
  Registered() { value = 7; }
  static int value;
};
int Registered::value = 0;
const Registered registered;

}  // namespace

int main() {
  std::mutex mutex;
  std::condition_variable done;
  int finished = 0;
  std::map<int, std::string> said;
  std::vector<std::thread> threads;
  for (int number = 0; number < 4; ++number) {
    threads.emplace_back([&, number] {
      here += number;
      std::ostringstream text;
      try {
        if (number % 2) throw std::out_of_range("odd");
        text << "even " << here;
      } catch (const std::exception& error) {
        text << error.what() << " " << here;
      }
      const std::lock_guard<std::mutex> lock(mutex);
      said[number] = text.str();
      ++finished;
      done.notify_one();
    });
  }
  {
    std::unique_lock<std::mutex> lock(mutex);
    done.wait(lock, [&] { return finished == 4; });
  }
  for (auto& thread : threads) thread.join();
  const float values[] = {1.5f, 2.5f};
  std::cout << answer() << " " << floor_mean(values, 2) << " " << Registered::value << " " << here << "\n";
  for (const auto& [number, text] : said) std::cout << number << ": " << text << "\n";
  return 0;
}
