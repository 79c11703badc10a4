// The nodes of a gradient of attention, found in a graph and joined to one that a library computes
// without a matrix of queries and keys in memory.
//
// Before  Attention again, for its probabilities P, and what ops/defs/attention makes of them:
//         dV = P^T dY, dP = dY V^T, dS = SoftmaxGrad(dP, P), dQ = scale dS K, dK = scale dS^T Q
// After   Y, LogSums     = ai.weft::AttentionWithSums(Q, K, V)
//         dQ, dK, dV     = ai.weft::AttentionGrad(dY, Q, K, V, Y, LogSums)
//
// LogSums, float32 [samples, query heads, queries], is the logarithm of the sum of powers of each
// row of scores: P = exp(S - LogSums). Both nodes have the attributes is_causal, scale,
// q_num_heads, kv_num_heads, always. Operands are [samples, heads, rows, size], or packed [samples,
// rows, heads * size]. Lowering makes these nodes for devices that want them; no file and no
// partition has them, so the registry has no such ops.
#ifndef WEFT_OPS_FUSION_ATTENTION_GRADIENT_H_
#define WEFT_OPS_FUSION_ATTENTION_GRADIENT_H_

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "graph/op_schema.h"
#include "tensor/device.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace weft {

inline constexpr char kAttentionWithSumsOp[] = "AttentionWithSums";
inline constexpr char kAttentionGradOp[] = "AttentionGrad";

// The places of operands.
enum AttentionGradInputs { kGradOfY, kGradQuery, kGradKey, kGradValue, kGradY, kGradLogSums };
enum AttentionGradOutputs { kGradOfQuery, kGradOfKey, kGradOfValue };

// They live for ever. Shape functions alone: such nodes have no gradient and no expansion.
const OpSchema& AttentionWithSumsSchema();
const OpSchema& AttentionGradSchema();

// What a library is asked about: attention without mask, past, lengths, window and cap. A value.
struct AttentionForm {
  DType dtype = DType::kInvalid;  // of all operands
  Shape query, key, value, result;
  int64_t q_heads = 1, kv_heads = 1;
  float scale = 1;
  bool causal = false;
};

// Whether a device computes both nodes of this form. `node` is for messages.
using TakesAttention = std::function<absl::StatusOr<bool>(const AttentionForm&, const Node& node)>;

// Joins each gradient of float16 or bfloat16 attention that `takes` agrees to, and returns how
// many. A form is asked about once.
//
// The nodes of a gradient have one phase, one stage and one of `colors` (by NodeId; empty: all are
// alike). The new node takes the place of one of them that comes after all that it reads and before
// all that reads it; all other nodes keep theirs. Values that become dQ, dK and dV keep ids and
// names. Where any value between is read by another node, is an output of the graph or is named in
// `kept`, the nodes stay as they are.
//
// LogSums is that of the forward node, where a backward node reads its Y, a Reshape of it, or those
// of its Transpose anyway: attention is then not computed again, and LogSums alone lives longer. A
// Transpose is undone to give Y. Else Y and LogSums are computed again.
//
// REQUIRES: ids of nodes are in an order of execution (Graph::Compact). The errors of `takes` come
// through.
absl::StatusOr<int> JoinAttentionGradients(Graph& graph, const TakesAttention& takes,
                                           const std::set<std::string>& kept = {},
                                           const std::vector<int>& colors = {});

// What a kind of device takes, through a library that the job asked for; null where it takes
// nothing. Thread-safe after main has begun.
using DeviceTakesAttention = absl::StatusOr<bool> (*)(Device&, const AttentionForm&, const Node&);
DeviceTakesAttention FindAttentionTaker(DeviceKind device);
// Before main; the last one of a kind counts. True, to initialize a static variable with.
bool RegisterAttentionTaker(DeviceKind device, DeviceTakesAttention takes);

}  // namespace weft

#endif  // WEFT_OPS_FUSION_ATTENTION_GRADIENT_H_
