// From the operands of an attention node to the panels of its rows (attention_panel.h): where rows
// of queries, keys, values and masks lie, and which keys each may attend.
#ifndef WEFT_OPS_KERNELS_CPU_ATTENTION_PANEL_OPERANDS_H_
#define WEFT_OPS_KERNELS_CPU_ATTENTION_PANEL_OPERANDS_H_

#include <cstdint>

#include "ops/kernels/cpu/attention/attention_panel.h"
#include "ops/kernels/cpu/attention/attention_plan.h"
#include "tensor/dtype.h"

namespace weft::cpu {

// The head of keys or values of one task: row t begins at rows + t * stride.
struct HeadRows {
  const float* rows;
  int64_t stride;
};

// Sample, query head and position of a row of queries.
struct QueryPlace {
  int64_t b, h, query;
};

// Rows of queries that share head `head` of keys (of batch * kv_heads) are one matrix of
// group * queries rows. Borrows the plan. A value.
class PanelRowsOf {
 public:
  PanelRowsOf(const AttentionPlan& plan, DType mask_dtype);

  // Of one head of keys.
  int64_t rows() const { return plan_->group() * plan_->queries; }
  int64_t panels() const { return (rows() + PanelRows() - 1) / PanelRows(); }

  QueryPlace PlaceOf(int64_t head, int64_t row) const;
  // Where the row begins in an operand [batch, q_heads, queries, size], packed or not, in elements.
  int64_t QueryRow(const QueryPlace& at, int64_t size) const {
    return plan_->Row(plan_->q_heads, plan_->queries, size, at.b, at.h, at.query);
  }
  // Where its number is in [batch, q_heads, queries].
  int64_t RowNumber(const QueryPlace& at) const {
    return (at.b * plan_->q_heads + at.h) * plan_->queries + at.query;
  }
  // A head of keys or values [batch, kv_heads, keys, size], packed or not.
  HeadRows HeadOf(const float* operand, int64_t head, int64_t size) const;
  // A head of past and present rows behind each other [batch, kv_heads, total, size].
  HeadRows JoinedHeadOf(const float* operand, int64_t head, int64_t size) const;

  // Sets the rows of panel `index` of a head, with their ranges and masks, all but keys and values.
  // `mask` and `lengths`: null if there are none. `places` gets a place for each row.
  void SetPanel(const float* query, const void* mask, const int64_t* lengths, int64_t head,
                int64_t index, AttentionPanel& panel, QueryPlace* places) const;

 private:
  const AttentionPlan* plan_;
  LoadMask load_mask_ = nullptr;
};

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_ATTENTION_PANEL_OPERANDS_H_
