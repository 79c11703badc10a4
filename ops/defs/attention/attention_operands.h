// The places of inputs and outputs of Attention.
#ifndef WEFT_OPS_DEFS_ATTENTION_ATTENTION_OPERANDS_H_
#define WEFT_OPS_DEFS_ATTENTION_ATTENTION_OPERANDS_H_

namespace weft {

enum AttentionInputs { kQuery, kKey, kValue, kMask, kPastKey, kPastValue, kValidLengths };
enum AttentionOutputs { kY, kPresentKey, kPresentValue, kScores };

}  // namespace weft

#endif  // WEFT_OPS_DEFS_ATTENTION_ATTENTION_OPERANDS_H_
