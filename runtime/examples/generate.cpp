// Goes on with a text: generate model.pte ids.txt 32. Numbers of tokens in and out, each as it comes.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <slipway/slipway.hpp>
#include <vector>

template <typename Outcome>
Outcome must(Outcome outcome) {
  if (!outcome.ok()) {
    std::cerr << outcome.error().message() << "\n" << outcome.error().fix() << "\n";
    std::exit(outcome.error().code());
  }
  return outcome;
}

int main(int argc, char** argv) {
  if (argc != 4) {
    return 2;
  }
  auto program = must(slipway::Program::load(argv[1]));
  auto session = must(slipway::Session::create(*program));
  must(session->set_sampling({}));  // {0.7, 40, 0.95, 1}: another text for each seed
  std::ifstream file(argv[2]);
  std::vector<std::int64_t> ids{std::istream_iterator<std::int64_t>(file), {}};
  const std::vector<std::int64_t> stops = session->stops();
  for (int left = std::atoi(argv[3]); left > 0; --left) {
    must(session->feed(ids));
    ids = {*must(session->sample())};
    std::cout << ids[0] << std::endl;
    const bool stopped = std::find(stops.begin(), stops.end(), ids[0]) != stops.end();
    if (stopped || session->position() == session->context()) {
      break;
    }
  }
  return 0;
}
