// The loops of roofline_loops.h for the vectors `Vector` of the file that includes this. ON(name) ends a name
// with the instruction set; and nothing from the standard library's headers but types: the linker might take
// a function of theirs that needs this instruction set for the whole program.

namespace {

// A compiler that knew the numbers could compute the sums ahead.
volatile float ON(g_zero) = 0;
volatile float ON(g_one) = 1;

double ON(total)(const float* lanes, std::size_t count) {
  double all = 0;
  for (std::size_t i = 0; i < count; ++i) {
    all += static_cast<double>(lanes[i]);
  }
  return all;
}

// As many sums as it takes to start a multiplication while others are under way, and no more than fit into
// the registers.
double ON(multiply_add)(std::size_t steps) {
  typename Vector::Type sums[Vector::kSums];
#pragma GCC unroll 32
  for (std::size_t i = 0; i < Vector::kSums; ++i) {
    sums[i] = Vector::broadcast(ON(g_zero));
  }
  const typename Vector::Type one = Vector::broadcast(ON(g_one));
  for (std::size_t step = 0; step < steps; step += kRooflineUnroll) {
#pragma GCC unroll 4
    for (std::size_t repeat = 0; repeat < kRooflineUnroll; ++repeat) {
#pragma GCC unroll 32
      for (std::size_t i = 0; i < Vector::kSums; ++i) {
        Vector::multiply_add(&sums[i], one);
      }
    }
  }
  alignas(64) float lanes[Vector::kSums * Vector::kLanes];
#pragma GCC unroll 32
  for (std::size_t i = 0; i < Vector::kSums; ++i) {
    Vector::store(lanes + i * Vector::kLanes, sums[i]);
  }
  return ON(total)(lanes, Vector::kSums * Vector::kLanes);
}

double ON(read)(const float* from, std::size_t count) {
  constexpr std::size_t kSums = Vector::kSums < 8 ? 4 : 8;
  typename Vector::Type sums[kSums];
#pragma GCC unroll 8
  for (std::size_t i = 0; i < kSums; ++i) {
    sums[i] = Vector::broadcast(ON(g_zero));
  }
  for (const float* end = from + count; from != end; from += kSums * Vector::kLanes) {
    Vector::prefetch(from);
#pragma GCC unroll 8
    for (std::size_t i = 0; i < kSums; ++i) {
      sums[i] = Vector::add(sums[i], Vector::load(from + i * Vector::kLanes));
    }
  }
  alignas(64) float lanes[kSums * Vector::kLanes];
#pragma GCC unroll 32
  for (std::size_t i = 0; i < kSums; ++i) {
    Vector::store(lanes + i * Vector::kLanes, sums[i]);
  }
  return ON(total)(lanes, kSums * Vector::kLanes);
}

constexpr RooflineLoops ON(kLoops) = {Vector::kFeature, Vector::kSums * Vector::kLanes,
                                      (Vector::kSums < 8 ? 4 : 8) * Vector::kLanes, &ON(multiply_add),
                                      &ON(read)};

}  // namespace
