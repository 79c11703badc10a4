// Sharding: how one value lies on the ranks of a mesh. A tiny closed vocabulary and a value type.
// (Vocabulary: OneFlow's split / broadcast / partial-sum; XLA's HloSharding.)
#ifndef WEFT_GRAPH_SHARDING_H_
#define WEFT_GRAPH_SHARDING_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensor/shape.h"

namespace weft {

// The axes of a mesh: replicas, shards and stages.
enum class MeshAxis : uint8_t { kData = 0, kTensor = 1, kPipeline = 2 };
inline constexpr int kMeshAxes = 3;
std::string_view MeshAxisName(MeshAxis axis);  // "data", "tensor", "pipeline"

// How a value lies along one mesh axis.
struct AxisSharding {
  enum class Kind : uint8_t { kReplicated, kPartial, kSplit };
  Kind kind = Kind::kReplicated;
  int axis = 0;        // kSplit: the tensor axis
  int64_t blocks = 1;  // kSplit: the axis is seen as blocks x rest, and rest is split

  static AxisSharding Replicated() { return {}; }
  // The value is the sum over the axis.
  static AxisSharding Partial() { return {Kind::kPartial, 0, 1}; }
  static AxisSharding Split(int axis, int64_t blocks = 1) { return {Kind::kSplit, axis, blocks}; }

  bool is_replicated() const { return kind == Kind::kReplicated; }
  bool is_partial() const { return kind == Kind::kPartial; }
  bool is_split() const { return kind == Kind::kSplit; }

  // Rank r of n owns rows [first, first + count) of `size`: the first size % n ranks get one more.
  struct Range {
    int64_t first = 0;
    int64_t count = 0;
  };
  static Range ShardRange(int64_t size, int shards, int index);

  // InvalidArgument unless the axis exists and `blocks` divides it.
  absl::Status Validate(const Shape& global) const;
  // Shape of shard `index` of `shards`. REQUIRES: Validate(global).ok().
  Shape LocalShape(const Shape& global, int shards, int index) const;

  std::string ToString() const;  // "R", "P", "S(1)", "S(1,blocks=3)"
  static absl::StatusOr<AxisSharding> Parse(const std::string& text);
  friend bool operator==(const AxisSharding&, const AxisSharding&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const AxisSharding& s) {
    return H::combine(std::move(h), s.kind, s.axis, s.blocks);
  }
};

// One AxisSharding per mesh axis.
struct Sharding {
  std::array<AxisSharding, kMeshAxes> axes;
  AxisSharding& at(MeshAxis axis) { return axes[static_cast<int>(axis)]; }
  const AxisSharding& at(MeshAxis axis) const { return axes[static_cast<int>(axis)]; }
  std::string ToString() const;
  friend bool operator==(const Sharding&, const Sharding&) = default;
};

// ---- The sharding rule of an op: index notation with factors ("n (h d), k -> ...").

// What splitting a factor means for the operands.
enum class FactorKind : uint8_t {
  kParallel,  // independent: splitting it splits every operand that has it
  kSum,       // summed over: splitting it makes the outputs Partial
  kWhole,     // needed whole (a softmax axis)
  kWindow,    // neighbours needed (a convolution's image axes); treated as whole for now
};

// One index of the notation, with its global size.
struct Factor {
  int64_t size = 1;
  FactorKind kind = FactorKind::kParallel;
};

// The factors of each dimension of one operand, from major to minor; their sizes multiply to the
// dimension. A dimension of size one that is broadcast has no factors. Empty for an absent operand.
struct OperandFactors {
  std::vector<std::vector<int>> dims;
};

// How one node can be split: the factors of all its operands.
struct FactorRule {
  std::vector<Factor> factors;
  std::vector<OperandFactors> inputs;
  std::vector<OperandFactors> outputs;
  // Each entry is a set of inputs in which the op is jointly linear: if exactly these inputs are
  // Partial and every other input is Replicated, all outputs are Partial. Add: {{0,1}}; MatMul:
  // {{0},{1}}; Neg: {{0}}; Mul: {{0},{1}}.
  std::vector<std::vector<int>> linear;
  // Inputs that tell sizes or positions (Reshape's shape): always Replicated, rewritten by
  // localize.
  std::vector<int> shape_inputs;
};

// How `operand` lies when factor `factor` is split `shards` ways: Split with the right blocks if it
// has the factor; Replicated if not. Unimplemented-free: returns nullopt when the factor cannot be
// split that way in this operand (a minor remainder does not divide evenly).
std::optional<AxisSharding> ShardingOfFactor(const FactorRule& rule, const OperandFactors& operand,
                                             int factor, int shards);

// A rule in which nothing may be split: every dimension a whole factor of its own.
FactorRule WholeRule(const std::vector<Shape>& inputs, const std::vector<Shape>& outputs);

}  // namespace weft

#endif  // WEFT_GRAPH_SHARDING_H_
