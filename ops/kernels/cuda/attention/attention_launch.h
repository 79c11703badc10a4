// What attention launches besides products of matrices.
#ifndef WEFT_OPS_KERNELS_CUDA_ATTENTION_ATTENTION_LAUNCH_H_
#define WEFT_OPS_KERNELS_CUDA_ATTENTION_ATTENTION_LAUNCH_H_

#include <cstdint>

#include "ops/kernels/cuda/blocks/fault.h"
#include "ops/kernels/cuda/language/launch_grid.h"
#include "tensor/dtype.h"

namespace weft::cuda {

// Which keys a query may attend but for the mask, and how queries are numbered.
struct AttendedKeys {
  int64_t total = 0;    // keys, with the past; below 2^31
  int64_t queries = 0;  // of a sample
  int64_t past = 0;
  bool has_past = false;
  bool causal = false;
  int64_t left = -1;  // windows; -1: unbounded
  int64_t right = -1;
  int64_t mask_columns = 0;          // keys beyond are not attended; `total` without a mask
  const int64_t* lengths = nullptr;  // valid keys of each sample; null: all
};

// What the output qk_matmul_output holds.
enum class ScoresStage : int32_t { kRaw, kCapped, kBiased, kProbabilities };

// Rows of scores to probabilities, for `samples` samples, `heads` heads and `queries` queries of
// each from the first ones on. Scores are [samples, heads, queries, total] of the type that is
// computed in: float64 for float64, else float32. Probabilities are of the operands' type, and may
// be the scores. A row without keys gives zeros.
struct AttentionSoftmax {
  const void* scores = nullptr;
  void* probabilities = nullptr;
  void* stage_output = nullptr;  // [all samples, all heads, all queries, total]; null: not wanted
  ScoresStage stage = ScoresStage::kRaw;
  const void* mask = nullptr;    // as added to scores, of their type; null: none
  int64_t mask_strides[4] = {};  // of sample, head, query, key; 0 where it broadcasts
  AttendedKeys keys;
  FaultReport lengths_fault;
  double softcap = 0;  // 0: none
  int64_t all_heads = 0;
  int64_t first_sample = 0, samples = 0;
  int64_t first_head = 0, heads = 0;
  int64_t first_query = 0, queries = 0;
};
int LaunchAttentionSoftmax(LaunchQueue queue, DType dtype, const AttentionSoftmax& softmax);

// bias[i] = what is added to a score: the mask itself, or 0 for true and minus infinity for false.
// `mask_dtype`: bool, a whole type or a floating one of 16 bits and more; bias is float64 for
// `wide`, else float32.
struct MaskToBias {
  const void* mask = nullptr;
  void* bias = nullptr;
  int64_t count = 0;
};
int LaunchMaskToBias(LaunchQueue queue, DType mask_dtype, bool wide, const MaskToBias& convert);

// joined[b, h, s] = past rows and the present ones behind them. `width`: 2, 4 or 8 bytes an
// element.
struct JoinPast {
  const void* past_rows = nullptr;  // [batch, heads, past, size]
  const void* rows = nullptr;       // [batch, heads, keys, size], packed [batch, keys, heads, size]
  void* joined = nullptr;           // [batch, heads, past + keys, size]
  int64_t batch = 0, heads = 0, past = 0, keys = 0, size = 0;
  bool packed = false;
};
int LaunchJoinPast(LaunchQueue queue, int width, const JoinPast& join);

// Pairs of elements turned by angles whose cosines and sines are in rows of caches.
struct RotatePairs {
  const void* x = nullptr;  // [batch, heads, length, size], packed [batch, length, heads, size]
  const void* cosines = nullptr;  // [rows, half]
  const void* sines = nullptr;
  const int64_t* positions = nullptr;  // [batch, length]: rows of the caches; null: in order
  void* y = nullptr;
  FaultReport positions_fault;
  int64_t batch = 0, heads = 0, length = 0, size = 0;
  int64_t half = 0;  // pairs of a row
  bool packed = false;
  bool interleaved = false;  // pairs are neighbours, else half the turned part apart
};
int LaunchRotatePairs(LaunchQueue queue, DType dtype, const RotatePairs& rotate);

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_ATTENTION_ATTENTION_LAUNCH_H_
