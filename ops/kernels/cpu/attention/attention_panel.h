// The arithmetic of attention in blocks, float32: a panel of queries against all keys, a block of
// keys at a time, so that no matrix of queries and keys is in memory. For blocked_attention.cc,
// which knows where operands lie.
//
// Queries are the lanes of vectors: the scores of a block lie as [keys, queries], so the softmax
// needs no sum across lanes, and neither keys nor values are copied into another order. The largest
// score and the sum of powers of a query follow its blocks (online softmax). T. Dao et al.,
// "FlashAttention", 2022, and M. Rabe, C. Staats, "Self-attention does not need O(n^2) memory",
// 2021, have the algorithm.
#ifndef WEFT_OPS_KERNELS_CPU_ATTENTION_ATTENTION_PANEL_H_
#define WEFT_OPS_KERNELS_CPU_ATTENTION_ATTENTION_PANEL_H_

#include <cstddef>
#include <cstdint>

namespace weft::cpu {

// Queries of a panel on any machine.
inline constexpr int kMaxPanelRows = 32;
// Keys of a block. Decides the order of sums, so it is one number for all shapes.
inline constexpr int64_t kPanelKeys = 64;

// Puts `count` numbers of a mask, from element `offset` on, `stride` (0 or 1) apart, as what is
// added to scores: of bool, 0 for true and minus infinity for false.
using LoadMask = void (*)(const void* mask, int64_t offset, int64_t stride, int64_t count,
                          float* to);

// Rows that are lanes, and the keys that they meet. Borrows everything.
struct AttentionPanel {
  int rows = 0;  // 1 to PanelRows()
  const float* queries[kMaxPanelRows];
  // Keys [begin, end) that each row may attend, but for the mask.
  int32_t begin[kMaxPanelRows];
  int32_t end[kMaxPanelRows];
  // Row t of keys begins key_stride * t elements behind the first.
  const float* keys = nullptr;
  const float* values = nullptr;
  int64_t key_stride = 0;
  int64_t value_stride = 0;
  int64_t key_size = 0;
  int64_t value_size = 0;
  float scale = 1;
  float softcap = 0;  // 0: none
  // Null: none. Row r of the mask begins at element mask_rows[r].
  const void* mask = nullptr;
  LoadMask load_mask = nullptr;  // null: the mask is float32, and its keys follow each other
  int64_t mask_rows[kMaxPanelRows];
  int64_t mask_stride = 1;
};

// Where the results of a forward panel go: value_size numbers a row, and the logarithm of the row's
// sum of powers, log(sum(exp(scores))): plus infinity for a row without keys. Null: not wanted.
struct AttentionResult {
  float* rows[kMaxPanelRows];
  float* log_sums[kMaxPanelRows];
};

// Queries of a panel on this machine: two vectors.
int PanelRows();

// Floats of scratch memory of AttendPanel, for heads of these sizes, on 64 bytes.
size_t AttendPanelScratch(int64_t key_size, int64_t value_size);

// Softmax(softcap(scale Q K^T) + mask) V of a panel. A row's bits depend on its own operands alone.
// A row that may attend no key gives zeros; NaN passes. Thread-safe with scratch of its own.
void AttendPanel(const AttentionPanel& panel, const AttentionResult& result, float* scratch);

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_ATTENTION_ATTENTION_PANEL_H_
