#include "ops/kernels/cpu/loss/loss_samples.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace weft::cpu {

LossSamples LossSamples::Of(const PrepareContext& context, int scores_input, int labels_input) {
  const Shape& scores = context.InputShape(scores_input);
  LossSamples samples;
  samples.batch = scores.dim(0);
  samples.classes = scores.dim(1);
  samples.inner = scores.ProductOf(2, scores.rank());
  samples.label_shape = context.InputShape(labels_input);
  const std::string reduction = context.attributes().String("reduction", "mean");
  if (reduction == "none") samples.reduction = LossReduction::kNone;
  if (reduction == "sum") samples.reduction = LossReduction::kSum;
  if (context.attributes().Has("ignore_index")) {
    samples.ignored = context.attributes().Int("ignore_index", 0);
  }
  return samples;
}

absl::Status LossSamples::BadLabel(int64_t label, int64_t sample) const {
  std::vector<int64_t> position(label_shape.rank());
  for (int d = label_shape.rank() - 1; d >= 0; --d) {
    position[d] = sample % label_shape.dim(d);
    sample /= label_shape.dim(d);
  }
  const std::string or_ignored = ignored.has_value() ? absl::StrCat(" or ", *ignored) : "";
  return absl::InvalidArgumentError(
      absl::StrCat("label ", label, " at position [", absl::StrJoin(position, ","),
                   "] is no class: expected 0 to ", classes - 1, or_ignored, " (the scores have ",
                   classes, " classes); check the labels of the data set, or set ignore_index"));
}

}  // namespace weft::cpu
