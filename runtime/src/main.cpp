#include <string>
#include <vector>

#include "runner.h"

int main(int argc, char** argv) {
  return slipway::run_command(std::vector<std::string>(argv + 1, argv + argc));
}
