#pragma once

#include <string>
#include <vector>

namespace proof {

// The CPU as cpuinfo sees it: what XNNPACK chooses its kernels by.
struct Cpu {
  bool known = false;  // cpuinfo could read it
  std::string name;
  std::vector<std::string> features;

  // What the expectations of the cases depend on.
  bool half_arithmetic = false;  // computes in half precision (Arm)
  bool half_emulated = false;    // x86: converts to single precision and back
  bool kleidiai_dotprod = false, kleidiai_i8mm = false, kleidiai_sme2 = false;
};

Cpu ReadCpu();

// Version of the KleidiAI that XNNPACK was built with; empty: without.
std::string KleidiaiVersion();
std::string XnnpackVersion();

}  // namespace proof
