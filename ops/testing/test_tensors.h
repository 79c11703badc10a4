// Seeded inputs for op tests.
#ifndef WEFT_OPS_TESTING_TEST_TENSORS_H_
#define WEFT_OPS_TESTING_TEST_TENSORS_H_

#include <cstdint>
#include <vector>

#include "tensor/tensor.h"

namespace weft::testing {

// Uniform in [low, high); whole numbers for integer dtypes, coin tosses for bool. The values fit
// float32 exactly whatever the dtype, so that a float64 copy is the same input.
Tensor RandomTensor(Shape shape, uint64_t seed, double low = -1, double high = 1,
                    DType dtype = DType::kFloat32);
// As above with a magnitude in [gap, 1): away from the kink of Relu and the pole of Log.
Tensor RandomAwayFromZero(Shape shape, uint64_t seed, double gap = 0.1);
// A permutation of equally spaced values in [-1, 2]: no two are close (for Max and its like), and
// they do not cancel.
Tensor RandomDistinct(Shape shape, uint64_t seed);

Tensor Int64s(const std::vector<int64_t>& values);
// REQUIRES: the cast is possible (real dtypes).
Tensor Cast(const Tensor& tensor, DType dtype);

// Shapes that find mistakes: scalars, ones, primes, vector lengths and one beside them, a zero
// dimension, rank 5.
std::vector<Shape> AwkwardShapes();

}  // namespace weft::testing

#endif  // WEFT_OPS_TESTING_TEST_TENSORS_H_
