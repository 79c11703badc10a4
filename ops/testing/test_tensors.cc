#include "ops/testing/test_tensors.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>

namespace weft::testing {
namespace {

// Uniform in [0, 1) with 24 bits: the same on every standard library.
double Uniform(std::mt19937_64& random) {
  return static_cast<double>(random() >> 40) / static_cast<double>(1 << 24);
}

Tensor FromDoubles(Shape shape, const std::vector<double>& values, DType dtype) {
  return Cast(Tensor::Of<double>(std::move(shape), values), dtype);
}

}  // namespace

Tensor RandomTensor(Shape shape, uint64_t seed, double low, double high, DType dtype) {
  std::mt19937_64 random(seed * 0x9E3779B97F4A7C15u + 1);
  std::vector<double> values(shape.num_elements());
  for (double& value : values) {
    value = low + (high - low) * Uniform(random);
    if (IsInteger(dtype)) value = std::floor(value);
    if (dtype == DType::kBool) value = Uniform(random) < 0.5 ? 0 : 1;
    value = static_cast<float>(value);
  }
  return FromDoubles(std::move(shape), values, dtype);
}

Tensor RandomAwayFromZero(Shape shape, uint64_t seed, double gap) {
  std::mt19937_64 random(seed * 0x9E3779B97F4A7C15u + 2);
  std::vector<double> values(shape.num_elements());
  for (double& value : values) {
    value = static_cast<float>(gap + (1 - gap) * Uniform(random));
    if (Uniform(random) < 0.5) value = -value;
  }
  return FromDoubles(std::move(shape), values, DType::kFloat32);
}

Tensor RandomDistinct(Shape shape, uint64_t seed) {
  std::mt19937_64 random(seed * 0x9E3779B97F4A7C15u + 3);
  std::vector<double> values(shape.num_elements());
  const double step = 3.0 / std::max<double>(1, static_cast<double>(values.size()) - 1);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(-1 + step * static_cast<double>(i));
  }
  for (size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[random() % i]);
  return FromDoubles(std::move(shape), values, DType::kFloat32);
}

Tensor Int64s(const std::vector<int64_t>& values) {
  return Tensor::Of<int64_t>(Shape{static_cast<int64_t>(values.size())}, values);
}

Tensor Cast(const Tensor& tensor, DType dtype) {
  absl::StatusOr<Tensor> converted = CastTensor(tensor, dtype);
  if (!converted.ok()) {
    std::fprintf(stderr, "%s\n", converted.status().ToString().c_str());
    std::abort();
  }
  return *std::move(converted);
}

std::vector<Shape> AwkwardShapes() {
  return {Shape{},     Shape{1},       Shape{7},          Shape{16},           Shape{17},
          Shape{1031}, Shape{3, 5},    Shape{13, 64},     Shape{0, 4},         Shape{4, 0, 3},
          Shape{1, 1}, Shape{2, 3, 5}, Shape{5, 1, 7, 3}, Shape{2, 3, 1, 4, 5}};
}

}  // namespace weft::testing
