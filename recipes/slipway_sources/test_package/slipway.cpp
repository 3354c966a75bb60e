#include <cmath>
#include <iostream>
#include <slipway/slipway.hpp>

// linear.pte is torch.nn.Linear(1, 1): y = -0.00748682 x + 0.5364436.
int main(int argc, char** argv) {
  auto program = slipway::Program::load(argc == 2 ? argv[1] : "");
  if (!program.ok()) {
    std::cerr << program.error().message() << "\n" << program.error().fix() << "\n";
    return 1;
  }
  float x = 100.0F;
  auto outputs = program->forward({slipway::from_blob(&x, {1, 1})});
  if (!outputs.ok()) {
    std::cerr << outputs.error().message() << "\n";
    return 1;
  }
  const float y = outputs->at(0).const_data<float>()[0];
  std::cout << "slipway " << slipway_version() << ": C++, " << y << "\n";
  return std::fabs(y + 0.2122384F) < 1e-5F ? 0 : 1;
}
