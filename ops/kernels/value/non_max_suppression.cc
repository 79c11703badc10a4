// NonMaxSuppression: the best boxes of each class that do not overlap a better one too much.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/value_kernel.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

struct Box {
  float left, top, right, bottom;
  float Area() const { return (right - left) * (bottom - top); }
};

// `corner`: two opposite corners as y, x, y, x in any order; else centre and size as x, y, w, h.
Box BoxOf(const float* values, bool corner) {
  if (corner) {
    return {std::min(values[1], values[3]), std::min(values[0], values[2]),
            std::max(values[1], values[3]), std::max(values[0], values[2])};
  }
  const float half_width = values[2] / 2;
  const float half_height = values[3] / 2;
  return {values[0] - half_width, values[1] - half_height, values[0] + half_width,
          values[1] + half_height};
}

bool Overlaps(const Box& a, const Box& b, float threshold) {
  const float width = std::min(a.right, b.right) - std::max(a.left, b.left);
  const float height = std::min(a.bottom, b.bottom) - std::max(a.top, b.top);
  if (width <= 0 || height <= 0) return false;
  const float intersection = width * height;
  const float area = a.Area() + b.Area() - intersection;
  if (a.Area() <= 0 || b.Area() <= 0 || area <= 0) return false;
  return intersection / area > threshold;
}

struct Limits {
  int64_t max_boxes = 0;  // per class
  float overlap = 0;
  bool has_score = false;
  float score = 0;
};

absl::StatusOr<Limits> LimitsOf(const ValueContext& context) {
  Limits limits;
  for (const int i : {2, 3, 4}) {
    if (!context.HasInput(i)) continue;
    if (context.InputTensor(i).num_elements() != 1) {
      return context.InvalidArgument(absl::StrCat("input ", i, " must be one number"));
    }
  }
  if (context.HasInput(2)) {
    limits.max_boxes = std::max<int64_t>(0, context.InputTensor(2).data<int64_t>()[0]);
  }
  if (context.HasInput(3)) limits.overlap = context.InputTensor(3).data<float>()[0];
  limits.has_score = context.HasInput(4);
  if (limits.has_score) limits.score = context.InputTensor(4).data<float>()[0];
  return limits;
}

// The boxes of one class to keep, best first. Of equal scores the first box is the better.
std::vector<int64_t> Select(const std::vector<Box>& boxes, const float* scores,
                            const Limits& limits) {
  std::vector<int64_t> candidates;
  for (size_t i = 0; i < boxes.size(); ++i) {
    if (std::isnan(scores[i]) || (limits.has_score && !(scores[i] > limits.score))) continue;
    candidates.push_back(static_cast<int64_t>(i));
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [scores](int64_t a, int64_t b) { return scores[a] > scores[b]; });
  std::vector<int64_t> kept;
  for (const int64_t candidate : candidates) {
    if (static_cast<int64_t>(kept.size()) >= limits.max_boxes) break;
    const Box& box = boxes[static_cast<size_t>(candidate)];
    const bool suppressed = std::any_of(kept.begin(), kept.end(), [&](int64_t better) {
      return Overlaps(box, boxes[static_cast<size_t>(better)], limits.overlap);
    });
    if (!suppressed) kept.push_back(candidate);
  }
  return kept;
}

absl::Status RunNonMaxSuppression(ValueContext& context) {
  const Tensor& boxes = context.InputTensor(0);
  const Tensor& scores = context.InputTensor(1);
  const Shape& b = boxes.shape();
  const Shape& s = scores.shape();
  if (b.rank() != 3 || s.rank() != 3 || b.dim(2) != 4 || s.dim(0) != b.dim(0) ||
      s.dim(2) != b.dim(1)) {
    return context.InvalidArgument(
        "expected boxes [batches, boxes, 4] and scores [batches, classes, boxes]");
  }
  WEFT_ASSIGN_OR_RETURN(const Limits limits, LimitsOf(context));
  const bool corner = context.attributes().Int("center_point_box", 0) == 0;
  const int64_t count = b.dim(1);
  std::vector<int64_t> selected;
  for (int64_t batch = 0; batch < b.dim(0); ++batch) {
    std::vector<Box> here;
    for (int64_t i = 0; i < count; ++i) {
      here.push_back(BoxOf(boxes.data<float>().data() + (batch * count + i) * 4, corner));
    }
    for (int64_t kind = 0; kind < s.dim(1); ++kind) {
      const float* row = scores.data<float>().data() + (batch * s.dim(1) + kind) * count;
      for (const int64_t index : Select(here, row, limits)) {
        selected.insert(selected.end(), {batch, kind, index});
      }
    }
  }
  const Shape shape{static_cast<int64_t>(selected.size() / 3), 3};
  context.SetOutput(0, Tensor::Of<int64_t>(shape, selected));
  return absl::OkStatus();
}

WEFT_REGISTER_VALUE_KERNEL("", "NonMaxSuppression", RunNonMaxSuppression);

}  // namespace
}  // namespace weft::cpu
