// What op declarations share: dtype lists, shape functions, sharding rules and costs.
#ifndef WEFT_OPS_DEFS_RULES_RULES_H_
#define WEFT_OPS_DEFS_RULES_RULES_H_

#include <initializer_list>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/op_schema.h"

namespace weft {

inline constexpr std::initializer_list<DType> kFloatTypes = {DType::kFloat32, DType::kFloat64,
                                                             DType::kFloat16, DType::kBfloat16};
inline constexpr std::initializer_list<DType> kNumericTypes = {
    DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBfloat16,
    DType::kInt8,    DType::kInt16,   DType::kInt32,   DType::kInt64,
    DType::kUint8,   DType::kUint16,  DType::kUint32,  DType::kUint64};
// Numbers and bool.
inline constexpr std::initializer_list<DType> kRealTypes = {
    DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBfloat16, DType::kInt8,
    DType::kInt16,   DType::kInt32,   DType::kInt64,   DType::kUint8,    DType::kUint16,
    DType::kUint32,  DType::kUint64,  DType::kBool};
inline constexpr std::initializer_list<DType> kIndexTypes = {DType::kInt32, DType::kInt64};

// ---- Shape functions.

// Output 0 has the type of input 0.
absl::Status InferLikeFirstInput(InferenceContext& context);
// Output 0 has the dtype of input 0, which all inputs share, and the broadcast of all shapes.
absl::Status InferBroadcast(InferenceContext& context);
// The same shape, all inputs of one dtype, the output bool (Equal, Less, ...).
absl::Status InferComparison(InferenceContext& context);

// ONNX's multidirectional broadcasting of the shapes of the given inputs. Unknown rank if one of
// them has; a dimension that may be one or more stays unknown. InvalidArgument when sizes clash.
absl::StatusOr<SymbolicShape> BroadcastInputs(const InferenceContext& context,
                                              const std::vector<int>& inputs);
// The same for concrete shapes.
absl::StatusOr<Shape> BroadcastShapes(const Shape& a, const Shape& b);
// InvalidArgument when two of the inputs have known, different dtypes.
absl::Status CheckSameDType(const InferenceContext& context, const std::vector<int>& inputs);

// The attribute `axis` (or `fallback`) of a node, made non-negative against `rank`. InvalidArgument
// naming both when it is outside [-rank, rank).
absl::StatusOr<int> AxisAttribute(const InferenceContext& context, const std::string& name,
                                  int64_t fallback, int rank);

// A concrete node's `axis`, which inference has checked, made non-negative.
int ConcreteAxis(const NodeView& view, const std::string& name, int64_t fallback, int rank);

// ---- Sharding rules.

// Collects a FactorRule, operand by operand in the order of the node's inputs and outputs.
//   FactorRuleBuilder rule;
//   const int m = rule.Factor(8), k = rule.Factor(4, FactorKind::kSum), n = rule.Factor(2);
//   rule.Input({m, k}).Input({k, n}).Output({m, n});
//   return rule.Linear({{0}, {1}}).Build();
class FactorRuleBuilder {
 public:
  int Factor(int64_t size, FactorKind kind = FactorKind::kParallel);
  // One factor per dimension of `shape`.
  std::vector<int> Factors(const Shape& shape, FactorKind kind = FactorKind::kParallel);
  // The next operand, each of whose dimensions is one factor; -1 for a dimension without one.
  FactorRuleBuilder& Input(const std::vector<int>& dims);
  FactorRuleBuilder& Output(const std::vector<int>& dims);
  // The next operand, with dimensions that are products of factors, the major one first.
  FactorRuleBuilder& FactoredInput(std::vector<std::vector<int>> dims);
  FactorRuleBuilder& FactoredOutput(std::vector<std::vector<int>> dims);
  // An operand in which nothing can be split (scalars, small tables, value inputs) or which is
  // absent.
  FactorRuleBuilder& ReplicatedInput(const Shape& shape);
  // The same, and its values are sizes or positions (see FactorRule::shape_inputs).
  FactorRuleBuilder& ShapeInput(const Shape& shape);
  FactorRuleBuilder& Linear(std::vector<std::vector<int>> sets);
  FactorRule Build() { return std::move(rule_); }

 private:
  OperandFactors Whole(const Shape& shape);
  FactorRule rule_;
};

// All operands broadcast to the outputs' shape and every element stands alone.
absl::StatusOr<FactorRule> ElementwiseRule(const NodeView& view);
// The same with the sets of inputs in which the op is jointly linear.
ShardingFn LinearElementwiseRule(std::vector<std::vector<int>> linear);
// All operands have one shape; `axis` (attribute `name`, or `fallback`) is needed whole.
ShardingFn WholeAxisRule(std::string name, int64_t fallback,
                         std::vector<std::vector<int>> linear = {});

// Nothing may be split: for a node whose values do not say yet what it does.
FactorRule WholeRuleOf(const NodeView& view);

// ---- Costs.

// Bytes of all operands, each counted once.
double OperandBytes(const NodeView& view);
// `flops` for each element of output 0.
CostFn FlopsPerElement(double flops);

}  // namespace weft

#endif  // WEFT_OPS_DEFS_RULES_RULES_H_
