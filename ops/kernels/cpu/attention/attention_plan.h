// What the kernels of Attention share: where heads lie in the operands, and which keys a query may
// attend.
#ifndef WEFT_OPS_KERNELS_CPU_ATTENTION_ATTENTION_PLAN_H_
#define WEFT_OPS_KERNELS_CPU_ATTENTION_ATTENTION_PLAN_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>

#include "absl/status/status.h"
#include "ops/kernel.h"

namespace weft::cpu {

enum AttentionInput { kQuery, kKey, kValue, kMask, kPastKey, kPastValue, kValidLengths };
enum AttentionOutput { kAttended, kPresentKey, kPresentValue, kScores };

// What the fourth output holds.
enum class ScoresMode : uint8_t { kRaw, kCapped, kBiased, kProbabilities };

// Where an operator has the operands of attention. Those of Attention itself; -1: it has none.
struct AttentionPlaces {
  int query = kQuery;  // key and value follow
  int mask = kMask;
  int past_key = kPastKey;  // past_value follows
  int lengths = kValidLengths;
  bool has_extra_outputs = true;  // present keys and values, and scores
};

// Keys [begin, end) of one query.
struct KeyRange {
  int64_t begin;
  int64_t end;
};

// The sizes, strides and options of one Attention node, or of one with other places for its
// operands, computed when its kernel is prepared.
struct AttentionPlan {
  explicit AttentionPlan(const PrepareContext& context, const AttentionPlaces& places = {});

  int64_t batch = 0;
  int64_t q_heads = 0;
  int64_t kv_heads = 0;
  int64_t queries = 0;  // per sample
  int64_t past = 0;
  int64_t keys = 0;   // without the past
  int64_t total = 0;  // with the past
  int64_t key_size = 0;
  int64_t value_size = 0;
  bool packed = false;  // operands are [batch, length, heads * size]
  float scale = 1;
  float softcap = 0;  // 0: none
  bool causal = false;
  int64_t left = -1;  // windows; -1: unbounded
  int64_t right = -1;
  ScoresMode mode = ScoresMode::kRaw;
  DType softmax_dtype = DType::kInvalid;
  bool has_mask = false;
  bool has_past = false;
  bool has_lengths = false;
  bool wants_present_key = false;
  bool wants_present_value = false;
  bool wants_scores = false;
  int64_t mask_elements = 0;
  std::array<int64_t, 4> mask_strides = {};  // 0 where it broadcasts
  int64_t mask_columns = 0;                  // keys beyond are not attended

  int64_t group() const { return q_heads / kv_heads; }
  // Where the row of position `s` of a head begins in Q, K, V or Y, in elements.
  int64_t Row(int64_t heads, int64_t length, int64_t size, int64_t b, int64_t h, int64_t s) const {
    return (packed ? (b * length + s) * heads + h : (b * heads + h) * length + s) * size;
  }
  int64_t MaskRow(int64_t b, int64_t h, int64_t query) const {
    return b * mask_strides[0] + h * mask_strides[1] + query * mask_strides[2];
  }
  // The keys that query `query` of sample `b` may attend but for the mask. `lengths`: the input
  // nonpad_kv_seqlen, checked, or null.
  KeyRange KeysOf(const int64_t* lengths, int64_t b, int64_t query) const;
  // InvalidArgument naming the first length outside of [0, total].
  absl::Status CheckLengths(const int64_t* lengths) const;
  // Puts the past and the present rows of all heads behind each other: [batch, kv_heads, total,
  // size] with `head_stride` elements from head to head, elements of `width` bytes.
  void JoinPast(const void* past_rows, const void* rows, int64_t size, int64_t head_stride,
                int width, void* out) const;
};

// Adds the mask's row (null: none; `stride` 0 or 1) to the scores of the range, makes those outside
// of it minus infinity, and says whether any key may be attended.
template <typename C>
bool AddBias(C* scores, int64_t total, KeyRange range, const C* mask, int64_t stride) {
  constexpr C kNever = -std::numeric_limits<C>::infinity();
  std::fill(scores, scores + range.begin, kNever);
  std::fill(scores + range.end, scores + total, kNever);
  if (mask == nullptr) return range.begin < range.end;
  bool any = false;
  for (int64_t j = range.begin; j < range.end; ++j) {
    const C bias = mask[j * stride];
    any |= bias != kNever;
    scores[j] = bias == kNever ? kNever : scores[j] + bias;
  }
  return any;
}

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_ATTENTION_ATTENTION_PLAN_H_
