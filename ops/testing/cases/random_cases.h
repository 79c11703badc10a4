// Random cases of every op that has a sharding rule: the shapes and values that a rule must hold
// for.
#ifndef WEFT_OPS_TESTING_CASES_RANDOM_CASES_H_
#define WEFT_OPS_TESTING_CASES_RANDOM_CASES_H_

#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "graph/op_schema.h"
#include "ops/testing/op_tester.h"

namespace weft::testing {

// Draws shapes and values; the same seed gives the same case on every machine.
class CaseRandom {
 public:
  explicit CaseRandom(uint64_t seed) : engine_(seed) {}

  int64_t Between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(engine_() % static_cast<uint64_t>(high - low + 1));
  }
  bool Coin() { return engine_() % 2 == 0; }
  // One of several, each as likely.
  template <typename T>
  T OneOf(const std::vector<T>& choices) {
    return choices[engine_() % choices.size()];
  }
  // A size of an axis: primes more often than others, sometimes less than the number of shards.
  int64_t Size() { return OneOf<int64_t>({1, 2, 3, 4, 5, 6, 7, 7, 11, 12, 13}); }
  int64_t SmallSize() { return OneOf<int64_t>({1, 2, 3, 4, 5, 6, 7}); }
  // The first axes are larger.
  Shape OfRank(int rank);
  Tensor Values(const Shape& shape, double low = -1, double high = 1,
                DType dtype = DType::kFloat32);
  // All `axes` of 0 .. rank - 1 in any order.
  std::vector<int64_t> Permutation(int rank);

 private:
  std::mt19937_64 engine_;
};

struct CaseGenerator {
  std::function<OpCase(CaseRandom&)> make;
  // The op only moves elements: shards have the bits of the whole.
  bool only_moves = false;
  // Inputs that the model may compute, but on whose values the rule depends: here constants of the
  // graph, as the schema's value inputs are.
  std::vector<int> constants = {};
  // False: no kernel computes it in double precision, so that there are only its own types.
  bool has_float64 = true;
};

// By OpSchema::FullName.
using CaseGenerators = std::map<std::string, CaseGenerator>;
const CaseGenerators& RandomCases();

// The families, each in a file of its own.
void AddElementwiseCases(CaseGenerators& generators);
void AddMovementCases(CaseGenerators& generators);
void AddProductCases(CaseGenerators& generators);
void AddReductionCases(CaseGenerators& generators);
void AddImageCases(CaseGenerators& generators);
void AddLossCases(CaseGenerators& generators);
void AddMathCases(CaseGenerators& generators);
void AddUpdateCases(CaseGenerators& generators);
void AddAttentionCases(CaseGenerators& generators);

// The sizes of a shape.
std::vector<int64_t> DimsOf(const Shape& shape);

}  // namespace weft::testing

#endif  // WEFT_OPS_TESTING_CASES_RANDOM_CASES_H_
