// SPDX-License-Identifier: Apache-2.0
//
// Random numbers that are the same on every machine and cost eight bytes of state: splitmix64 (G. Steele, D. Lea,
// C. Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014). One thread per object.
#pragma once

#include <cmath>
#include <cstdint>

namespace cw::sync::sim {

inline uint64_t Mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

class Random {
 public:
  explicit Random(uint64_t seed, uint64_t stream = 0) : state_(Mix(seed * 0x9e3779b97f4a7c15ull + Mix(stream + 1))) {}

  uint64_t Next() { return Mix(state_ += 0x9e3779b97f4a7c15ull); }
  double Uniform() { return static_cast<double>(Next() >> 11) * 0x1.0p-53; }  // [0, 1)
  double Symmetric(double most) { return (2 * Uniform() - 1) * most; }
  uint64_t Below(uint64_t n) { return n == 0 ? 0 : Next() % n; }
  bool Chance(double p) { return p > 0 && Uniform() < p; }
  double Exponential(double mean) { return -mean * std::log(1 - Uniform()); }
  double Normal(double sd) {
    return sd * std::sqrt(-2 * std::log(1 - Uniform())) * std::cos(6.283185307179586 * Uniform());
  }

 private:
  uint64_t state_;
};

}  // namespace cw::sync::sim
