// The nodes around a matrix product that its library computes beside it, joined to one node.
//
//   Y = A B + bias                  a MatMul and an Add of one row; a Gemm has its bias already
//   Y = A B [+ bias] + C            and an Add of a C of the same shape: a residual, another
//   gradient H = gelu(Z), Z = A B [+ bias]   Gelu by tanh; Z is given too where anything else needs
//   it dZ = (dH B) gelu'(Z)            TanhGeluGrad of a product dW = X^T dY, db = sums of dY what
//   sums the rows that a product multiplies; also dW = dY^T X
//
// A joined value is rounded once, where the nodes round each step. So float32 differs by roundings,
// and 16-bit types by what the first rounding lost. A Relu stays a node of its own: cuBLASLt's
// makes 0 of NaN, which a step has to see.
#ifndef WEFT_OPS_FUSION_JOIN_PRODUCTS_H_
#define WEFT_OPS_FUSION_JOIN_PRODUCTS_H_

#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "ops/fusion/fuse_regions.h"
#include "tensor/device.h"

namespace weft {

// Columns of Y that a Z beside it lies in multiples of (CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD).
inline constexpr int64_t kProductAuxColumns = 8;

// Whether a library computes the nodes of `body`: a product in float32, float16 or bfloat16 with
// elements, at least two rows and columns in each weight, and what is joined to it, in order. The
// shapes are those of the graph.
using TakesProduct = std::function<absl::StatusOr<bool>(const Graph& body)>;

// Joins what `takes` agrees to, as nodes of JoinedProduct (fused_node.h): of a chain the longest
// begin. Each has id, name, phase, stage and origin of its seat, as fused regions do
// (ops/fusion/README.md); outputs keep ids and names. `colors` as of FindRegions. Returns how many
// nodes became how many.
//
// REQUIRES: ids of nodes are in an order of execution (Graph::Compact); they are afterwards too.
// The errors of `takes` come through.
absl::StatusOr<FusionCounts> JoinProducts(Graph& graph, const TakesProduct& takes,
                                          const std::vector<int>& colors = {});

// What the libraries of a kind of device take; null where it joins nothing. `tf32`: products in
// float32 may be rounded to TF32. Thread-safe after main has begun.
using DeviceTakesProduct = absl::StatusOr<bool> (*)(Device&, const Graph& body, bool tf32);
DeviceTakesProduct FindProductTaker(DeviceKind device);
// Before main, or by a test; the last one of a kind counts. True, to initialize a static variable
// with.
bool RegisterProductTaker(DeviceKind device, DeviceTakesProduct takes);

}  // namespace weft

#endif  // WEFT_OPS_FUSION_JOIN_PRODUCTS_H_
