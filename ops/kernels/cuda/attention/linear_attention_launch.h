// What LinearAttention and its gradient launch.
#ifndef WEFT_OPS_KERNELS_CUDA_ATTENTION_LINEAR_ATTENTION_LAUNCH_H_
#define WEFT_OPS_KERNELS_CUDA_ATTENTION_LINEAR_ATTENTION_LAUNCH_H_

#include <cstdint>

#include "ops/kernels/cuda/blocks/real_operand.h"
#include "ops/kernels/cuda/language/launch_grid.h"
#include "tensor/dtype.h"

namespace weft::cuda {

// Sizes and operands of LinearAttention. Query, key, value, decay and beta are of one type.
struct LinearAttentionOperands {
  int64_t batch = 0, steps = 0, q_heads = 1, kv_heads = 1, key_size = 0, value_size = 0;
  int64_t decays = 0;  // of a head and step: 0 (none), 1, or one for each element of its key
  int64_t betas = 0;   // of a step: 0 (none), 1, or one for each head
  double scale = 1;
  const void* query = nullptr;  // [batch, steps, q_heads, key_size]
  const void* key = nullptr;    // [batch, steps, kv_heads, key_size]
  const void* value = nullptr;  // [batch, steps, kv_heads, value_size]
  const void* decay = nullptr;  // [batch, steps, kv_heads, decays]
  const void* beta = nullptr;   // [batch, steps, betas]
  RealInput past_state;         // [batch, kv_heads, key_size, value_size]; null: zeros
};

// All steps. `state` is scratch: [batch, kv_heads, key_size, value_size] of float64 for `wide`,
// else of float32. With `chunk` > 0, the state before each chunk-th step is kept in `starts`,
// [chunks, batch, kv_heads, key_size, value_size] of the same type, where chunks is at least 1.
struct LinearAttentionForward {
  LinearAttentionOperands of;
  void* state = nullptr;
  void* y = nullptr;         // [batch, steps, q_heads, value_size]; null: not wanted
  RealOutput present_state;  // null: not wanted
  void* starts = nullptr;
  int64_t chunk = 0;
};
int LaunchLinearAttention(LaunchQueue queue, DType dtype, bool wide,
                          const LinearAttentionForward& forward);

// The gradient of the steps [begin, end), the last ones first. Scratch is of float64 for `wide`,
// else of float32. With S the state that a step finds after its decay, S' the one behind it,
//   u = v - S^T k (without beta: v), w = beta u, S' = S + k w^T, y = scale S'^T q.
struct LinearAttentionChunk {
  LinearAttentionOperands of;
  int64_t begin = 0, end = 0;
  int64_t chunk = 1;            // slots of the scratch: end - begin <= chunk
  const void* start = nullptr;  // [batch, kv_heads, key_size, value_size]: the state before begin
  void* dstate = nullptr;       // the same of its gradient, from chunk to chunk
  void* states = nullptr;       // S, [batch, kv_heads, chunk, key_size, value_size]
  void* dstates = nullptr;      // the gradient of S' with the part of y, the same shape
  void* u = nullptr;            // [batch, kv_heads, chunk, value_size]
  void* dw = nullptr;
  const void* dy = nullptr;  // null: zeros
  RealInput dpresent_state;  // null: zeros; read by the last chunk
  bool is_last = false;      // `end` is the number of steps
  void* dquery = nullptr;    // gradients; null: not wanted
  void* dkey = nullptr;
  void* dvalue = nullptr;
  RealOutput dpast_state;  // written by the first chunk, whose begin is 0
  void* ddecay = nullptr;
  void* dbeta = nullptr;
};
int LaunchLinearAttentionChunk(LaunchQueue queue, DType dtype, bool wide,
                               const LinearAttentionChunk& chunk);

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_ATTENTION_LINEAR_ATTENTION_LAUNCH_H_
