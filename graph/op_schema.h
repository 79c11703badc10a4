// OpSchema: everything the engine knows about an operator except how to compute it. One object per
// op, declared in one file of ops/defs, registered with WEFT_REGISTER_OP under the declaration.
// Generic code asks the schema; nobody switches over op names.
//
//   WEFT_REGISTER_OP(OpSchema::Onnx("Relu")
//                        .Input("X", kFloatTypes)
//                        .Output("Y")
//                        .Infer(InferLikeFirstInput)
//                        .Gradient(ReluGradient)
//                        .Sharding(ElementwiseRule)
//                        .InPlace(0, 0));
//
// The graph holds each op in its newest ONNX form only: the importer rewrites older ones.
#ifndef WEFT_GRAPH_OP_SCHEMA_H_
#define WEFT_GRAPH_OP_SCHEMA_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "graph/sharding.h"

namespace weft {

class GraphBuilder;

// What a shape function sees. The contexts here are implemented in graph/ (inference), training/
// (gradient) and placement/ (localize).
class InferenceContext : public NodeOperands {
 public:
  // REQUIRES: HasInput(i).
  virtual const ValueType& InputType(int i) const = 0;
  const SymbolicShape& InputShape(int i) const { return InputType(i).shape; }
  // The input's value when known at compile time (constants, shape arithmetic, inputs fixed by the
  // caller); else null.
  virtual const Tensor* InputValue(int i) const = 0;
  // For 0- and 1-D integer inputs whose length is known: their elements as dimensions, each a known
  // size, a symbol, or unknown (`Dim()`). Nullopt when nothing is known of any.
  virtual std::optional<std::vector<Dim>> InputDims(int i) const = 0;
  virtual void SetOutput(int i, ValueType type) = 0;
  void SetOutput(int i, DType dtype, SymbolicShape shape);  // a tensor
  // Says what the elements of a 0- or 1-D integer output are, as dimensions (Shape, Concat, ...).
  virtual void SetOutputDims(int i, std::vector<Dim> dims) = 0;
  // InvalidArgument with node name, op and shapes in front of `message`.
  virtual absl::Status Error(const std::string& message) const = 0;
};
using InferFn = std::function<absl::Status(InferenceContext&)>;

// The value that is differentiated, and what stands for d(loss)/d(value): same shape.
struct GradientSeed {
  ValueId value;
  ValueId gradient;
};

// What a gradient rule sees: it adds nodes that compute the gradients of inputs from those of
// outputs.
class GradientContext {
 public:
  virtual ~GradientContext() = default;
  virtual const Node& node() const = 0;
  virtual const Graph& graph() const = 0;
  // Adds nodes of Phase::kBackward with this node as origin.
  virtual GraphBuilder& builder() = 0;
  ValueId Input(int i) const {
    return i < static_cast<int>(node().inputs.size()) ? node().inputs[i] : kNoValue;
  }
  ValueId Output(int i) const {
    return i < static_cast<int>(node().outputs.size()) ? node().outputs[i] : kNoValue;
  }
  // An output that the imported node did not ask for and the gradient needs (MaxPool's Indices,
  // LayerNormalization's Mean): adds it to the node.
  virtual ValueId RequireOutput(int i, const std::string& name_suffix) = 0;
  // Gradient that arrived at output i; kNoValue = none (means zero).
  virtual ValueId OutputGradient(int i) const = 0;
  // False: computing it would be in vain.
  virtual bool NeedsInputGradient(int i) const = 0;
  // Not setting it for a needed input means zero.
  virtual void SetInputGradient(int i, ValueId gradient) = 0;
  // For ops with bodies: adds nodes to `body` (another graph than graph()) that compute the
  // gradients of its seeded values with respect to `wanted`, and returns these by value; a wanted
  // value that no seed depends on has no entry. Errors as a node of graph() without a rule gives.
  virtual absl::StatusOr<std::map<ValueId, ValueId>> DifferentiateBody(
      Graph& body, const std::vector<GradientSeed>& seeds, const std::vector<ValueId>& wanted) = 0;
};
using GradientFn = std::function<absl::Status(GradientContext&)>;

// What an op does with elements, for dtypes that no kernel of it computes with (strings, complex
// numbers, 4-bit and 8-bit types): these then run as integers that stand for them.
enum class ElementUse : uint8_t {
  kComputes,  // numbers only
  kMoves,     // output elements are copies of input elements, or zeros (Transpose, Pad, ...)
  kCompares,  // it asks only which are equal or less (Equal, Unique): strings too
};

// Whether gradients flow through an op.
enum class GradientKind : uint8_t {
  kMissing,  // differentiable in principle, no rule: an error that names the path
  kNone,     // not differentiable by nature (Shape, Equal, ...): no gradient flows
  kRule,
};

// Concrete shapes, attributes and known values for rules, costs and kernels.
class NodeView : public NodeOperands {
 public:
  // Rank 0 / kInvalid for absent operands.
  virtual const Shape& InputShape(int i) const = 0;
  virtual const Shape& OutputShape(int i) const = 0;
  virtual DType InputDType(int i) const = 0;
  virtual DType OutputDType(int i) const = 0;
  virtual const Tensor* InputValue(int i) const = 0;
};
using ShardingFn = std::function<absl::StatusOr<FactorRule>(const NodeView&)>;

// The work of one node on given shapes: floating-point operations, and bytes moved at least.
struct Cost {
  double flops = 0;
  double bytes = 0;  // read + written at least once
};
using CostFn = std::function<Cost(const NodeView&)>;

// Rewrites the shape-like attributes and constant inputs of one shard of a node.
class LocalizeContext {
 public:
  virtual ~LocalizeContext() = default;
  virtual const Node& node() const = 0;  // as it was, with global shapes
  virtual const Shape& GlobalInputShape(int i) const = 0;
  virtual const Shape& GlobalOutputShape(int i) const = 0;
  virtual const Shape& LocalInputShape(int i) const = 0;
  virtual const Shape& LocalOutputShape(int i) const = 0;
  virtual const Tensor* InputValue(int i) const = 0;
  virtual void SetAttribute(const std::string& name, Attribute value) = 0;
  virtual void SetConstantInput(int i, Tensor value) = 0;
};
using LocalizeFn = std::function<absl::Status(LocalizeContext&)>;

// Expands a node into simpler ones (a function body as a builder). Returns one value per output.
class ExpandContext {
 public:
  virtual ~ExpandContext() = default;
  virtual const Node& node() const = 0;
  virtual const Graph& graph() const = 0;
  virtual GraphBuilder& builder() = 0;
};
using ExpandFn = std::function<absl::StatusOr<std::vector<ValueId>>(ExpandContext&)>;

// How a loss that is a mean is taken apart (law 14 of docs/architecture.md): adds nodes that
// compute, over the samples at hand, the sum of the losses and the sum of the weights (the count):
// loss = sum / weight.
struct MeanParts {
  ValueId sum;
  ValueId weight;
};
using MeanPartsFn = std::function<absl::StatusOr<MeanParts>(ExpandContext&)>;

// What one replica has of a batch that all replicas compute together, each in one micro-batch.
struct BatchPart {
  int64_t samples = 0;      // of this micro-batch
  int64_t all_samples = 0;  // of the whole batch
  int micro_batches = 1;    // of the whole batch
};
// Builds a node that mixes samples so that it computes with those of all replicas: its sums over
// samples go through ai.weft::SumOverReplicas. One value per output; none at all where the node is
// right as it is. The shapes of the graph are concrete.
using WholeBatchFn =
    std::function<absl::StatusOr<std::vector<ValueId>>(ExpandContext&, const BatchPart&)>;

// A declared input or output of an op.
struct FormalParameter {
  std::string name;
  // Allowed dtypes; empty = any.
  std::vector<DType> dtypes;
  bool optional = false;
  bool variadic = false;
  // A float initializer that enters here is a parameter to train, even a scalar.
  bool learnable = false;
  // Never a parameter: running statistics, scales, bounds, ratios, shapes.
  bool never_learnable = false;
  // A sequence or an optional may enter here too.
  bool any_kind = false;
};

// A declared attribute of an op.
struct FormalAttribute {
  std::string name;
  AttributeType type = AttributeType::kInt;
  bool required = false;
};

// What kind of thing executes the op.
enum class OpClass : uint8_t {
  kCompute,        // a kernel
  kCommunication,  // Send, Recv, collectives: the executor's communicator
  kBoundary,       // Accumulate: the border between micro-batches and the step; compiled away
};

// Immutable once registered. The builder methods return *this.
class OpSchema {
 public:
  static OpSchema Onnx(std::string name) { return OpSchema("", std::move(name)); }
  static OpSchema Weft(std::string name) { return OpSchema(std::string(kWeftDomain), name); }
  OpSchema(std::string domain, std::string name)
      : domain_(std::move(domain)), name_(std::move(name)) {}

  OpSchema& Input(std::string name, std::vector<DType> dtypes = {});
  OpSchema& OptionalInput(std::string name, std::vector<DType> dtypes = {});
  OpSchema& VariadicInput(std::string name, std::vector<DType> dtypes = {});
  // These mark the input declared last.
  OpSchema& AnyKind();
  OpSchema& Learnable();
  OpSchema& NeverLearnable();
  OpSchema& Output(std::string name);
  OpSchema& OptionalOutput(std::string name);
  OpSchema& VariadicOutput(std::string name);
  OpSchema& Attr(std::string name, AttributeType type, bool required = false);
  OpSchema& Infer(InferFn fn);
  OpSchema& Gradient(GradientFn fn);
  // In a few words, why no gradient flows by the op's nature, and why there is no rule though one
  // could be.
  OpSchema& NoGradient(std::string reason);
  OpSchema& GradientMissing(std::string reason);
  OpSchema& Sharding(ShardingFn fn);
  OpSchema& Localize(LocalizeFn fn);
  OpSchema& CostOf(CostFn fn);
  OpSchema& Expand(ExpandFn fn);
  OpSchema& MeanLoss(MeanPartsFn fn);
  OpSchema& WholeBatch(WholeBatchFn fn);
  // Output `output` may be written over input `input` when that value dies here (same bytes).
  OpSchema& InPlace(int input, int output);
  // Output `output` is the same bytes as input `input` under another shape: no kernel runs.
  OpSchema& Alias(int input, int output);
  // Output 0 equals input 0 whenever their shapes are equal (SumToShape, Expand): specialization
  // then drops the node. Aliases are dropped so without saying it.
  OpSchema& NoOpWhenSameShape();
  // The values of these inputs decide output shapes: they must be known when a program is compiled.
  OpSchema& ValueInputs(std::vector<int> inputs);
  OpSchema& Elements(ElementUse use);
  OpSchema& Class(OpClass op_class);
  // Same inputs, other outputs (random numbers): never merged or folded.
  OpSchema& Stateful();

  const std::string& domain() const { return domain_; }
  const std::string& name() const { return name_; }
  std::string FullName() const;  // "Conv", "ai.weft::SgdUpdate"
  const std::vector<FormalParameter>& inputs() const { return inputs_; }
  const std::vector<FormalParameter>& outputs() const { return outputs_; }
  const std::vector<FormalAttribute>& attributes() const { return attributes_; }
  // The formal parameter that actual input i belongs to (the variadic one takes the rest); null if
  // there are too many.
  const FormalParameter* FormalInput(int i) const;
  const FormalParameter* FormalOutput(int i) const;
  const InferFn& infer() const { return infer_; }
  GradientKind gradient_kind() const { return gradient_kind_; }
  const GradientFn& gradient() const { return gradient_; }
  const std::string& gradient_reason() const { return gradient_reason_; }
  const ShardingFn& sharding() const { return sharding_; }  // empty: replicated only
  const LocalizeFn& localize() const { return localize_; }
  const CostFn& cost() const { return cost_; }  // empty: one FLOP per output element
  const ExpandFn& expand() const { return expand_; }
  const MeanPartsFn& mean_loss() const { return mean_loss_; }
  const WholeBatchFn& whole_batch() const { return whole_batch_; }
  const std::vector<std::pair<int, int>>& in_place() const { return in_place_; }
  const std::vector<std::pair<int, int>>& aliases() const { return aliases_; }
  bool no_op_when_same_shape() const { return no_op_when_same_shape_; }
  const std::vector<int>& value_inputs() const { return value_inputs_; }
  ElementUse element_use() const { return element_use_; }
  OpClass op_class() const { return class_; }
  bool stateful() const { return stateful_; }

 private:
  std::string domain_;
  std::string name_;
  std::vector<FormalParameter> inputs_;
  std::vector<FormalParameter> outputs_;
  std::vector<FormalAttribute> attributes_;
  InferFn infer_;
  GradientKind gradient_kind_ = GradientKind::kMissing;
  GradientFn gradient_;
  std::string gradient_reason_;
  ShardingFn sharding_;
  LocalizeFn localize_;
  CostFn cost_;
  ExpandFn expand_;
  MeanPartsFn mean_loss_;
  WholeBatchFn whole_batch_;
  std::vector<std::pair<int, int>> in_place_;
  std::vector<std::pair<int, int>> aliases_;
  bool no_op_when_same_shape_ = false;
  std::vector<int> value_inputs_;
  ElementUse element_use_ = ElementUse::kComputes;
  OpClass class_ = OpClass::kCompute;
  bool stateful_ = false;
};

// The process's ops. Filled by static registration (and, later, plug-ins) before first use; reading
// is thread-safe.
class OpRegistry {
 public:
  static OpRegistry& Global();
  // AlreadyExists when the op is there.
  absl::Status Register(OpSchema schema);
  // Null when unknown. `domain` "ai.onnx" means "".
  const OpSchema* Find(std::string_view domain, std::string_view name) const;
  // In (domain, name) order.
  std::vector<const OpSchema*> All() const;
  // The registered name of the same domain nearest to `name`, for "did you mean"; may be empty.
  std::string Nearest(std::string_view domain, std::string_view name) const;

 private:
  std::map<std::pair<std::string, std::string>, std::unique_ptr<OpSchema>> schemas_;
};

namespace internal {
bool RegisterOpOrDie(OpSchema schema);  // a duplicate is our own broken invariant
}

#define WEFT_REGISTER_OP(...) WEFT_REGISTER_OP_AT(__COUNTER__, __VA_ARGS__)
#define WEFT_REGISTER_OP_AT(n, ...) WEFT_REGISTER_OP_NAMED(n, __VA_ARGS__)
#define WEFT_REGISTER_OP_NAMED(n, ...) \
  [[maybe_unused]] static const bool weft_op_##n = ::weft::internal::RegisterOpOrDie(__VA_ARGS__)

}  // namespace weft

#endif  // WEFT_GRAPH_OP_SCHEMA_H_
