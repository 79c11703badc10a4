#include "ops/kernels/cuda/fusion/region_ops.h"

#include <cmath>
#include <functional>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "ops/axes.h"

namespace weft::cuda {
namespace {

bool IsFloat(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat64 || dtype == DType::kFloat16 ||
         dtype == DType::kBfloat16;
}

// What comparisons and Where take besides.
bool IsNumber(DType dtype) {
  return IsFloat(dtype) || dtype == DType::kInt32 || dtype == DType::kInt64;
}

bool IsTruth(DType dtype) { return dtype == DType::kBool; }

DType TypeOfValue(const Graph& graph, ValueId value) { return graph.value(value).type.dtype; }

// All inputs that are given have this one type.
bool HasOneType(const Graph& graph, const Node& node, size_t first, bool (*fits)(DType)) {
  const DType dtype = TypeOfValue(graph, node.inputs[first]);
  for (size_t i = first; i < node.inputs.size(); ++i) {
    if (node.inputs[i].valid() && TypeOfValue(graph, node.inputs[i]) != dtype) return false;
  }
  return fits(dtype);
}

// FunctionParameters of the elementwise kernels.
std::string Parameters(double a, double b = 0, double c = 0) {
  return absl::StrCat("FunctionParameters{", LiteralText(DType::kFloat64, a), ", ",
                      LiteralText(DType::kFloat64, b), ", ", LiteralText(DType::kFloat64, c), "}");
}

// ---- Functions of one type, by their functors.

using FunctorText = std::function<std::string(const Attributes& attributes)>;

FunctorText Plain(const char* functor) {
  return [functor](const Attributes&) { return absl::StrCat(functor, "{}"); };
}

// `alpha` of a functor that takes it as its first parameter.
FunctorText WithAlpha(const char* functor, float fallback) {
  return [functor, fallback](const Attributes& attributes) {
    return absl::StrCat(functor, "{", Parameters(attributes.Float("alpha", fallback)), "}");
  };
}

struct FloatFunction {
  size_t operands = 1;
  FunctorText functor;
};

using OpName = std::pair<std::string, std::string>;  // domain, op

void AddMathFunctions(std::map<OpName, FloatFunction>& table) {
  constexpr std::pair<const char*, const char*> kPlain[] = {{"Neg", "NegOp"},
                                                            {"Abs", "AbsOp"},
                                                            {"Sign", "SignOp"},
                                                            {"Relu", "ReluOp"},
                                                            {"Exp", "ExpOp"},
                                                            {"Log", "LogOp"},
                                                            {"Sqrt", "SqrtOp"},
                                                            {"Reciprocal", "ReciprocalOp"},
                                                            {"Erf", "ErfOp"},
                                                            {"Sin", "SinOp"},
                                                            {"Cos", "CosOp"},
                                                            {"Ceil", "CeilOp"},
                                                            {"Floor", "FloorOp"},
                                                            {"Round", "RoundOp"},
                                                            {"Sigmoid", "SigmoidOp"},
                                                            {"Tanh", "TanhOp"},
                                                            {"HardSwish", "HardSwishOp"},
                                                            {"Softplus", "SoftplusOp"},
                                                            {"Softsign", "SoftsignOp"},
                                                            {"Mish", "MishOp"}};
  for (const auto& [op, functor] : kPlain) table[{"", op}] = {1, Plain(functor)};
}

void AddActivations(std::map<OpName, FloatFunction>& table) {
  table[{"", "LeakyRelu"}] = {1, WithAlpha("LeakyReluOp", 0.01f)};
  table[{"", "ThresholdedRelu"}] = {1, WithAlpha("ThresholdedReluOp", 1)};
  table[{"", "Swish"}] = {1, WithAlpha("SwishOp", 1)};
  table[{"", "SwiGLU"}] = {2, WithAlpha("SwiGluOp", 1)};
  table[{"", "Elu"}] = {1, [](const Attributes& attributes) {
                          return absl::StrCat("EluOp{",
                                              Parameters(attributes.Float("alpha", 1), 1, 1), "}");
                        }};
  table[{"", "HardSigmoid"}] = {
      1, [](const Attributes& attributes) {
        return absl::StrCat(
            "HardSigmoidOp{",
            Parameters(attributes.Float("alpha", 0.2f), attributes.Float("beta", 0.5f)), "}");
      }};
  table[{"", "Gelu"}] = {1, [](const Attributes& attributes) -> std::string {
                           const bool by_tanh = attributes.String("approximate", "none") == "tanh";
                           return by_tanh ? "TanhGeluOp{}" : "GeluOp{}";
                         }};
}

const std::map<OpName, FloatFunction>& FloatFunctions() {
  static const auto* const functions = [] {
    auto* const table = new std::map<OpName, FloatFunction>();
    AddMathFunctions(*table);
    AddActivations(*table);
    constexpr std::pair<const char*, const char*> kOfTwo[] = {
        {"Add", "AddOp"}, {"Sub", "SubOp"}, {"Mul", "MulOp"},
        {"Div", "DivOp"}, {"Pow", "PowOp"}, {"PRelu", "PReluOp"}};
    for (const auto& [op, functor] : kOfTwo) (*table)[{"", op}] = {2, Plain(functor)};
    constexpr std::pair<const char*, const char*> kSlopes[] = {
        {"ReluGrad", "ReluGradOp"},  {"SigmoidGrad", "SigmoidGradOp"},
        {"TanhGrad", "TanhGradOp"},  {"ErfGrad", "ErfGradOp"},
        {"GeluGrad", "GeluGradOp"},  {"TanhGeluGrad", "TanhGeluGradOp"},
        {"SwishGrad", "SwishGradOp"}};
    for (const auto& [op, functor] : kSlopes) {
      (*table)[{std::string(kWeftDomain), op}] = {2, Plain(functor)};
    }
    return table;
  }();
  return *functions;
}

// ---- Operators with types of their own.

std::string Call(const std::string& functor, const std::vector<std::string>& operands) {
  return absl::StrCat(functor, "(", absl::StrJoin(operands, ", "), ")");
}

std::optional<std::string> ComparisonText(const Graph& graph, const Node& node,
                                          const std::vector<std::string>& operands) {
  static const auto* const functors = new std::map<std::string, std::pair<const char*, bool>>{
      {"Equal", {"ComparisonOp{false, true}", false}},
      {"Less", {"ComparisonOp{true, false}", false}},
      {"LessOrEqual", {"ComparisonOp{true, true}", false}},
      {"Greater", {"ComparisonOp{true, false}", true}},
      {"GreaterOrEqual", {"ComparisonOp{true, true}", true}}};
  const auto found = functors->find(node.op);
  if (found == functors->end() || operands.size() != 2 || !HasOneType(graph, node, 0, IsNumber)) {
    return std::nullopt;
  }
  const auto& [functor, swaps] = found->second;
  return Call(functor, {operands[swaps ? 1 : 0], operands[swaps ? 0 : 1]});
}

std::optional<std::string> LogicText(const Graph& graph, const Node& node,
                                     const std::vector<std::string>& operands) {
  static const auto* const functors =
      new std::map<std::string, const char*>{{"Not", "NotOp{}"},
                                             {"And", "BitLogicOp{BitLogic::kAnd}"},
                                             {"Or", "BitLogicOp{BitLogic::kOr}"},
                                             {"Xor", "BitLogicOp{BitLogic::kXor}"}};
  const auto found = functors->find(node.op);
  if (found == functors->end() || !HasOneType(graph, node, 0, IsTruth)) return std::nullopt;
  return Call(found->second, operands);
}

std::optional<std::string> WhereText(const Graph& graph, const Node& node,
                                     const std::vector<std::string>& operands) {
  if (node.op != "Where" || operands.size() != 3 || !IsTruth(TypeOfValue(graph, node.inputs[0])) ||
      !HasOneType(graph, node, 1, IsNumber)) {
    return std::nullopt;
  }
  return absl::StrCat("(", operands[0], " != 0 ? ", operands[1], " : ", operands[2], ")");
}

std::optional<std::string> CastText(const Graph& graph, const Node& node,
                                    const std::vector<std::string>& operands) {
  if (node.op != "Cast" || node.attributes.Has("round_mode")) return std::nullopt;
  const DType from = TypeOfValue(graph, node.inputs[0]);
  const DType to = TypeOfValue(graph, node.outputs[0]);
  if (!(IsNumber(from) || IsTruth(from))) return std::nullopt;
  if (IsTruth(to)) return Call("TruthOp{}", operands);
  if (!IsNumber(to)) return std::nullopt;
  return Call(absl::StrCat("CastOp<", ElementText(to), ">{}"), operands);
}

std::optional<std::string> ClipText(const Graph& graph, const Node& node,
                                    const std::vector<std::string>& operands) {
  if (node.op != "Clip" || operands[0].empty() || !HasOneType(graph, node, 0, IsFloat)) {
    return std::nullopt;
  }
  const std::string type = ComputeText(TypeOfValue(graph, node.inputs[0]));
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    if (!node.inputs[i].valid()) continue;
    const auto shape = graph.value(node.inputs[i]).type.shape.ToConcrete();
    if (!shape || shape->num_elements() != 1) return std::nullopt;
  }
  const auto bound = [&](size_t i, const char* none) {
    return i < operands.size() && !operands[i].empty() ? operands[i]
                                                       : absl::StrCat(none, "<", type, ">");
  };
  return absl::StrCat("BetweenOp<", type, ">{", bound(1, "kLowEnd"), ", ", bound(2, "kHighEnd"),
                      "}(", operands[0], ")");
}

std::optional<std::string> FoldedText(const Graph& graph, const Node& node,
                                      const std::vector<std::string>& operands) {
  static const auto* const functors = new std::map<std::string, const char*>{
      {"Sum", "SumOfOperands{}"}, {"Max", "ExtremeFold{false}"}, {"Min", "ExtremeFold{true}"}};
  const auto found = functors->find(node.op);
  if (found == functors->end() || !HasOneType(graph, node, 0, IsFloat)) return std::nullopt;
  std::string total = operands[0];
  for (size_t i = 1; i < operands.size(); ++i) total = Call(found->second, {total, operands[i]});
  return total;
}

bool IsOnnx(const Node& node) { return node.domain.empty(); }

// Infinities and NaNs have no literals.
bool HasFiniteParameters(const Attributes& attributes) {
  return std::isfinite(attributes.Float("alpha", 0)) && std::isfinite(attributes.Float("beta", 0));
}

}  // namespace

const char* ElementText(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "float";
    case DType::kFloat64:
      return "double";
    case DType::kFloat16:
      return "Float16";
    case DType::kBfloat16:
      return "Bfloat16";
    case DType::kBool:
      return "uint8_t";
    case DType::kInt32:
      return "int32_t";
    case DType::kInt64:
      return "int64_t";
    default:
      return nullptr;
  }
}

const char* ComputeText(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBfloat16 ? "float" : ElementText(dtype);
}

std::string LiteralText(DType dtype, double value) {
  if (!IsFloat(dtype)) {
    // The smallest int64 has no literal; a cast from its bits has.
    return absl::StrFormat("static_cast<%s>(%uull)", ElementText(dtype),
                           static_cast<uint64_t>(static_cast<int64_t>(value)));
  }
  return absl::StrFormat("%a%s", value, dtype == DType::kFloat64 ? "" : "f");
}

std::optional<std::string> ExpressionOf(const Graph& graph, const Node& node,
                                        const std::vector<std::string>& operands) {
  const auto function = FloatFunctions().find({node.domain, node.op});
  if (function != FloatFunctions().end()) {
    if (operands.size() != function->second.operands || !HasOneType(graph, node, 0, IsFloat) ||
        !HasFiniteParameters(node.attributes)) {
      return std::nullopt;
    }
    return Call(function->second.functor(node.attributes), operands);
  }
  if (!IsOnnx(node)) return std::nullopt;
  for (const auto text : {ClipText, ComparisonText, LogicText, WhereText, CastText, FoldedText}) {
    std::optional<std::string> expression = text(graph, node, operands);
    if (expression) return expression;
  }
  return std::nullopt;
}

std::optional<RowFold> RowFoldOf(const Graph& graph, const Node& node) {
  static const auto* const folds =
      new std::map<std::string, RegionFold>{{"ReduceSum", RegionFold::kSum},
                                            {"ReduceMean", RegionFold::kMean},
                                            {"ReduceMax", RegionFold::kLargest}};
  const auto found = folds->find(node.op);
  if (found == folds->end() || !IsOnnx(node)) return std::nullopt;
  const ValueDef& input = graph.value(node.inputs[0]);
  const std::optional<Shape> shape = input.type.shape.ToConcrete();
  if (!IsFloat(input.type.dtype) || !shape) return std::nullopt;
  // A mean over a shard divides by the elements of all.
  if (input.placement && input.placement->global_shape != *shape) return std::nullopt;
  const Tensor* axes = nullptr;
  if (node.inputs.size() > 1 && node.inputs[1].valid()) {
    if (graph.value(node.inputs[1]).source != ValueSource::kConstant) return std::nullopt;
    axes = &graph.value(node.inputs[1]).constant;
  }
  const auto reduced =
      ReducedAxes(shape->rank(), axes, node.attributes.Int("noop_with_empty_axes", 0) != 0);
  if (!reduced.ok()) return std::nullopt;
  RowFold result{.fold = found->second, .rows = 1, .columns = 1};
  for (int i = 0; i < shape->rank(); ++i) {
    const bool is_row = !(*reduced)[i];
    if (is_row && i > 0 && (*reduced)[i - 1] && result.columns > 1) return std::nullopt;
    (is_row ? result.rows : result.columns) *= shape->dim(i);
  }
  return result;
}

FusedRole RoleOnGpu(const Graph& graph, const Node& node) {
  for (const ValueId value : node.outputs) {
    if (value.valid() && ElementText(TypeOfValue(graph, value)) == nullptr) return FusedRole::kNone;
  }
  if (const std::optional<RowFold> fold = RowFoldOf(graph, node)) {
    // A block folds a row: few long ones keep few multiprocessors busy.
    constexpr int64_t kShortRow = 2048;
    constexpr int64_t kManyRows = 256;
    const bool is_worth = fold->columns <= kShortRow || fold->rows >= kManyRows;
    return is_worth ? FusedRole::kReduction : FusedRole::kNone;
  }
  std::vector<std::string> operands;
  for (const ValueId input : node.inputs) operands.emplace_back(input.valid() ? "v" : "");
  return ExpressionOf(graph, node, operands) ? FusedRole::kElementwise : FusedRole::kNone;
}

}  // namespace weft::cuda
