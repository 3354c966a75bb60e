#include "base/platform.h"
#include "runner/runner.h"

int main(int argc, char** argv) {
  return slipway::run_command(slipway::command_words(argc, argv));
}
