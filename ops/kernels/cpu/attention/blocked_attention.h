// Attention of float32 in blocks, without a matrix of queries and keys in memory.
#ifndef WEFT_OPS_KERNELS_CPU_ATTENTION_BLOCKED_ATTENTION_H_
#define WEFT_OPS_KERNELS_CPU_ATTENTION_BLOCKED_ATTENTION_H_

#include <memory>

#include "absl/status/statusor.h"
#include "ops/kernel.h"
#include "ops/kernels/cpu/attention/attention_plan.h"

namespace weft::cpu {

// Whether the kernels in blocks compute what the plan asks for; its operands and its softmax are
// float32. They do not give scores.
bool AttendsInBlocks(const AttentionPlan& plan);

// Attention. REQUIRES: AttendsInBlocks of its plan. Bits of a row depend neither on the number of
// threads nor on other rows. The workspace is linear in the number of keys.
absl::StatusOr<std::unique_ptr<Kernel>> PrepareBlockedAttention(const PrepareContext& context);

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_ATTENTION_BLOCKED_ATTENTION_H_
