// Arithmetic on dimensions that may be symbols, for shape functions; and the costs and factors of
// ops that only move data.
#ifndef WEFT_OPS_DEFS_MOVEMENT_SHAPE_DIMS_H_
#define WEFT_OPS_DEFS_MOVEMENT_SHAPE_DIMS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/op_schema.h"

namespace weft {

using Dims = std::vector<Dim>;

// `rank` dimensions of which nothing is known.
Dims UnknownDims(int64_t rank);
// The dimension that both are, where an unknown one yields to a known one; nullopt when the sizes
// contradict each other. Two different symbols give the first.
std::optional<Dim> MergeDims(const Dim& a, const Dim& b);
// What holds of a value that has either shape: the dimensions in which both agree.
SymbolicShape CommonShape(const SymbolicShape& a, const SymbolicShape& b);
// The result of broadcasting a against b (ONNX, multidirectional); nullopt when they cannot be.
std::optional<Dim> BroadcastDims(const Dim& a, const Dim& b);
// Product of dims[begin, end): a size, a symbol (all others are 1), or unknown.
Dim ProductOfDims(const Dims& dims, int begin, int end);
// The sum: a size, a symbol (all others are 0), or unknown.
Dim SumOfDims(const Dims& dims);
std::string DimsToString(const Dims& dims);

// Sets output 0 to `dtype` and `dims` after checking that sizes are in bounds (they may come from
// tensors of a file).
absl::Status SetCheckedOutput(InferenceContext& context, DType dtype, Dims dims);

// Hands the elements of input 0, where known as dimensions, on to output 0, if that has rank 0
// or 1.
void ForwardDims(InferenceContext& context, const SymbolicShape& output);

// The elements of input i as int64 when they are known at compile time. InvalidArgument when the
// input has more than one axis.
absl::StatusOr<std::optional<std::vector<int64_t>>> KnownInts(InferenceContext& context, int i);
// Input i as the shape of an output: its elements, or as many unknown ones as it has elements;
// nullopt when not even that is known. InvalidArgument when a size is negative.
absl::StatusOr<std::optional<Dims>> TargetDims(InferenceContext& context, int i);
// KnownInts for rules, costs and kernels, where they must be known: Internal when not.
absl::StatusOr<std::vector<int64_t>> RequiredInts(const NodeView& view, int i);
std::vector<int64_t> DimsOf(const Shape& shape);
// int64 [n].
Tensor IntsTensor(const std::vector<int64_t>& values);

// `NormalizeAxis` with the node's name in the text.
absl::StatusOr<int> AxisOf(InferenceContext& context, int64_t axis, int rank);

// No FLOPs; the bytes of all operands but shape-like ones.
Cost MovementCost(const NodeView& view);
// Another view of the same bytes.
Cost AliasCost(const NodeView& view);

// Appends a factor and returns its number.
int AddFactor(FactorRule& rule, int64_t size, FactorKind kind);
// A rule for `view` in which every dimension of every operand is there, without factors yet.
FactorRule EmptyRule(const NodeView& view);
// Marks inputs [first, view.num_inputs()) as lists of sizes or positions.
void AddShapeInputs(const NodeView& view, int first, FactorRule& rule);

}  // namespace weft

#endif  // WEFT_OPS_DEFS_MOVEMENT_SHAPE_DIMS_H_
