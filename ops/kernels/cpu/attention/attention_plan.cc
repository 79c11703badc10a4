#include "ops/kernels/cpu/attention/attention_plan.h"

#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace weft::cpu {
namespace {

void ReadSizes(const PrepareContext& context, const AttentionPlaces& places, AttentionPlan& plan) {
  const Attributes& attributes = context.attributes();
  const Shape& q = context.InputShape(places.query);
  const Shape& k = context.InputShape(places.query + 1);
  const Shape& v = context.InputShape(places.query + 2);
  plan.packed = q.rank() == 3;
  plan.batch = q.dim(0);
  plan.q_heads = plan.packed ? attributes.Int("q_num_heads", 1) : q.dim(1);
  plan.kv_heads = plan.packed ? attributes.Int("kv_num_heads", 1) : k.dim(1);
  plan.queries = q.dim(plan.packed ? 1 : 2);
  plan.keys = k.dim(plan.packed ? 1 : 2);
  plan.key_size = plan.packed ? k.dim(2) / plan.kv_heads : k.dim(3);
  plan.value_size = plan.packed ? v.dim(2) / plan.kv_heads : v.dim(3);
  plan.has_past = places.past_key >= 0 && context.HasInput(places.past_key);
  plan.past = plan.has_past ? context.InputShape(places.past_key).dim(2) : 0;
  plan.total = plan.past + plan.keys;
}

void ReadMask(const Shape& mask, AttentionPlan& plan) {
  const auto strides = mask.Strides();
  plan.mask_elements = mask.num_elements();
  for (int d = 0; d < mask.rank(); ++d) {
    plan.mask_strides[4 - mask.rank() + d] = mask.dim(d) == 1 ? 0 : strides[d];
  }
  plan.mask_columns = mask.dim(mask.rank() - 1) == 1 ? plan.total : mask.dim(mask.rank() - 1);
}

}  // namespace

AttentionPlan::AttentionPlan(const PrepareContext& context, const AttentionPlaces& places) {
  ReadSizes(context, places, *this);
  const Attributes& attributes = context.attributes();
  const float default_scale =
      key_size > 0 ? static_cast<float>(1.0 / std::sqrt(static_cast<double>(key_size))) : 1.0f;
  scale = attributes.Float("scale", default_scale);
  softcap = std::max(attributes.Float("softcap", 0.0f), 0.0f);
  causal = attributes.Int("is_causal", 0) != 0;
  left = attributes.Int("left_window_size", -1);
  right = attributes.Int("right_window_size", -1);
  mode = static_cast<ScoresMode>(attributes.Int("qk_matmul_output_mode", 0));
  softmax_dtype = static_cast<DType>(
      attributes.Int("softmax_precision", static_cast<int64_t>(context.InputDType(places.query))));
  has_mask = places.mask >= 0 && context.HasInput(places.mask);
  has_lengths = places.lengths >= 0 && context.HasInput(places.lengths);
  wants_present_key = places.has_extra_outputs && context.HasOutput(kPresentKey);
  wants_present_value = places.has_extra_outputs && context.HasOutput(kPresentValue);
  wants_scores = places.has_extra_outputs && context.HasOutput(kScores);
  if (has_mask) ReadMask(context.InputShape(places.mask), *this);
}

KeyRange AttentionPlan::KeysOf(const int64_t* lengths, int64_t b, int64_t query) const {
  const int64_t valid = lengths == nullptr ? total : lengths[b];
  // How many keys come before the first query.
  const int64_t offset = has_past ? past : lengths == nullptr ? 0 : valid - queries;
  const int64_t position = query + offset;
  int64_t end = has_mask ? std::min(valid, mask_columns) : valid;
  if (causal) end = std::min(end, position + 1);
  if (right >= 0 && right < total) end = std::min(end, position + right + 1);
  int64_t begin = left >= 0 && left <= position ? position - left : 0;
  end = std::clamp<int64_t>(end, 0, total);
  begin = std::min(begin, end);
  return {begin, end};
}

absl::Status AttentionPlan::CheckLengths(const int64_t* lengths) const {
  for (int64_t b = 0; has_lengths && b < batch; ++b) {
    if (lengths[b] >= 0 && lengths[b] <= total) continue;
    return absl::InvalidArgumentError(absl::StrCat("nonpad_kv_seqlen[", b, "] is ", lengths[b],
                                                   ", expected 0 to the ", total, " keys"));
  }
  return absl::OkStatus();
}

void AttentionPlan::JoinPast(const void* past_rows, const void* rows, int64_t size,
                             int64_t head_stride, int width, void* out) const {
  const int64_t row_bytes = size * width;
  if (row_bytes == 0) return;
  for (int64_t head = 0; head < batch * kv_heads; ++head) {
    char* to = static_cast<char*>(out) + head * head_stride * width;
    if (past > 0) {
      std::memcpy(to, static_cast<const char*>(past_rows) + head * past * row_bytes,
                  past * row_bytes);
      to += past * row_bytes;
    }
    for (int64_t s = 0; s < keys; ++s) {
      const int64_t from = Row(kv_heads, keys, size, head / kv_heads, head % kv_heads, s) * width;
      std::memcpy(to + s * row_bytes, static_cast<const char*>(rows) + from, row_bytes);
    }
  }
}

}  // namespace weft::cpu
