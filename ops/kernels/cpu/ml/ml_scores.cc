#include "ops/kernels/cpu/ml/ml_scores.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "absl/strings/str_cat.h"
#include "ops/kernels/cpu/blocks/operand.h"

namespace weft::cpu {
namespace {

double Logistic(double x) {
  const double v = 1 / (1 + std::exp(-std::abs(x)));
  return x < 0 ? 1 - v : v;
}

// Winitzki's approximation of the inverse error function, which the standard's runtimes share.
double InverseErf(double x) {
  const double rest = (1 - x) * (1 + x);
  if (rest == 0) return 0;
  const double log = std::log(rest);
  const double v = 2 / (std::numbers::pi * 0.147) + 0.5 * log;
  const double root = std::sqrt(std::sqrt(v * v - log / 0.147) - v);
  return x < 0 ? -root : root;
}

// Scores of (almost) nothing keep what they are, times e^-largest.
void Softmax(double* scores, int64_t count, bool keep_zeros) {
  const double largest = *std::max_element(scores, scores + count);
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    const bool zero = keep_zeros && std::abs(scores[i]) <= 1e-7;
    scores[i] = zero ? scores[i] * std::exp(-largest) : std::exp(scores[i] - largest);
    sum += scores[i];
  }
  for (int64_t i = 0; i < count; ++i) scores[i] = sum == 0 ? 0.5 : scores[i] / sum;
}

}  // namespace

absl::StatusOr<PostTransform> ParsePostTransform(const std::string& name) {
  if (name == "NONE" || name.empty()) return PostTransform::kNone;
  if (name == "SOFTMAX") return PostTransform::kSoftmax;
  if (name == "LOGISTIC") return PostTransform::kLogistic;
  if (name == "SOFTMAX_ZERO") return PostTransform::kSoftmaxZero;
  if (name == "PROBIT") return PostTransform::kProbit;
  return absl::InvalidArgumentError(
      absl::StrCat("attribute post_transform is '", name,
                   "', expected NONE, SOFTMAX, LOGISTIC, SOFTMAX_ZERO or PROBIT"));
}

void ApplyPostTransform(PostTransform transform, double* scores, int64_t count) {
  if (count == 0) return;
  switch (transform) {
    case PostTransform::kNone:
      return;
    case PostTransform::kSoftmax:
      return Softmax(scores, count, /*keep_zeros=*/false);
    case PostTransform::kSoftmaxZero:
      return Softmax(scores, count, /*keep_zeros=*/true);
    case PostTransform::kLogistic:
      std::transform(scores, scores + count, scores, Logistic);
      return;
    case PostTransform::kProbit:
      std::transform(scores, scores + count, scores,
                     [](double score) { return std::numbers::sqrt2 * InverseErf(2 * score - 1); });
      return;
  }
}

int64_t LargestScore(const double* scores, int64_t count) {
  return std::max_element(scores, scores + count) - scores;
}

void LoadRow(DType dtype, const void* data, int64_t first, int64_t count, double* row) {
  DispatchDType(dtype, [&](auto zero) {
    const auto* from = static_cast<const decltype(zero)*>(data) + first;
    for (int64_t i = 0; i < count; ++i) row[i] = static_cast<double>(Load(from[i]));
  });
}

void StoreRow(DType dtype, const double* row, int64_t count, void* data, int64_t first) {
  if (dtype == DType::kFloat64) {
    std::copy(row, row + count, static_cast<double*>(data) + first);
  } else if (dtype == DType::kFloat32) {
    float* to = static_cast<float*>(data) + first;
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(row[i]);
  } else {
    Float16* to = static_cast<Float16*>(data) + first;
    for (int64_t i = 0; i < count; ++i) to[i] = ToFloat16(static_cast<float>(row[i]));
  }
}

}  // namespace weft::cpu
