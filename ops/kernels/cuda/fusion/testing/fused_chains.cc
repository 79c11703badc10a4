#include "ops/kernels/cuda/fusion/testing/fused_chains.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "graph/op_schema.h"
#include "ops/fusion/fuse_regions.h"
#include "ops/fusion/fused_node.h"
#include "ops/fusion/fusion_rules.h"
#include "platform/status.h"
#include "platform/status_macros.h"
#include "tensor/device.h"

namespace weft::testing {
namespace {

constexpr double kDropoutScale = 1.25;  // of one value in five

// A graph while it grows.
class ChainWriter {
 public:
  ChainWriter(int64_t rows, int64_t columns, DType dtype, const ChainInput& input)
      : rows_(rows), columns_(columns), dtype_(dtype), input_(input) {}

  void BiasAndGelu() { Output(Op("Gelu", {Op("Add", {Wide(), Input({columns_}, dtype_)})})); }

  void DropoutAndResidual() { Output(Op("Add", {Dropped(), Wide()})); }

  // Row by row: what a Softmax does between its largest element and its sum, ...
  void BeginOfSoftmax() {
    const ValueId power = Op("Exp", {Op("Sub", {Wide(), Input({rows_, 1}, dtype_)})});
    Output(power);
    Output(Op("ReduceSum", {power, builder_.Ints({1})}));
  }

  // ... and after it, with a mask: as in attention.
  void EndOfSoftmax() {
    const ValueId share = Op("Div", {Wide(), Input({rows_, 1}, dtype_)});
    Output(share);
    Output(Op("Mul", {share, Mask()}));
  }

  void GradientOfDropoutAndGelu() { Output(builder_.WeftOp("GeluGrad", {Dropped(), Wide()})); }

  absl::StatusOr<OpCase> Fused() {
    WEFT_RETURN_IF_ERROR(builder_.status());
    return FusedCaseOf(graph_, tensors_);
  }

 private:
  ValueId Input(const Shape& shape, DType dtype) {
    const ValueId value = graph_.AddInput("x", {ValueKind::kTensor, dtype, SymbolicShape(shape)});
    tensors_[value] = input_(shape, dtype);
    return value;
  }
  ValueId Wide() { return Input({rows_, columns_}, dtype_); }
  ValueId Mask() {
    return Op("Cast", {Input({rows_, columns_}, DType::kBool)},
              {{"to", static_cast<int64_t>(dtype_)}});
  }
  ValueId Dropped() {
    const ValueId kept = Op("Mul", {Wide(), Mask()});
    return Op("Mul", {kept, builder_.Scalar(dtype_, kDropoutScale)});
  }
  ValueId Op(const std::string& op, std::vector<ValueId> inputs, Attributes attributes = {}) {
    return builder_.Op(op, std::move(inputs), std::move(attributes));
  }
  void Output(ValueId value) { graph_.AddOutput(value); }

  const int64_t rows_;
  const int64_t columns_;
  const DType dtype_;
  const ChainInput& input_;
  Graph graph_;
  GraphBuilder builder_{graph_};
  std::map<ValueId, Tensor> tensors_;
};

absl::Status MakeFusedKnown() {
  static const absl::Status status = OpRegistry::Global().Register(FusedSchema());
  return status;
}

}  // namespace

absl::StatusOr<OpCase> FusedCaseOf(Graph& graph, const std::map<ValueId, Tensor>& tensors) {
  WEFT_RETURN_IF_ERROR(MakeFusedKnown());
  const FusionRules* const rules = FindFusionRules(DeviceKind::kCuda);
  if (rules == nullptr) return absl::InternalError("no rules of kCuda are linked");
  WEFT_RETURN_IF_ERROR(FuseRegions(graph, *rules).status());
  if (graph.num_nodes() != 1) {
    return absl::InternalError(absl::StrCat("the nodes are fused to ", graph.num_nodes(),
                                            " instead of one:\n", graph.DebugString()));
  }
  const Node& fused = graph.node(graph.node_ids()[0]);
  OpCase op_case{.domain = fused.domain,
                 .op = fused.op,
                 .attributes = fused.attributes,
                 .inputs = {},
                 .outputs = std::vector<bool>(fused.outputs.size(), true)};
  for (const ValueId input : fused.inputs) {
    Tensor& tensor = op_case.inputs.emplace_back();
    if (!input.valid()) continue;
    const ValueDef& value = graph.value(input);
    tensor = value.source == ValueSource::kConstant ? value.constant : tensors.at(input);
  }
  return op_case;
}

absl::StatusOr<std::vector<FusedChain>> FusedChains(int64_t rows, int64_t columns, DType dtype,
                                                    const ChainInput& input) {
  constexpr std::pair<const char*, void (ChainWriter::*)()> kChains[] = {
      {"bias, Gelu", &ChainWriter::BiasAndGelu},
      {"mask, scale, residual", &ChainWriter::DropoutAndResidual},
      {"Sub, Exp, sums of rows", &ChainWriter::BeginOfSoftmax},
      {"Div by rows, mask", &ChainWriter::EndOfSoftmax},
      {"mask, scale, GeluGrad", &ChainWriter::GradientOfDropoutAndGelu}};
  std::vector<FusedChain> chains;
  for (const auto& [name, write] : kChains) {
    ChainWriter writer(rows, columns, dtype, input);
    (writer.*write)();
    absl::StatusOr<OpCase> op_case = writer.Fused();
    WEFT_RETURN_IF_ERROR(Annotate(op_case.status(), name));
    chains.push_back({name, *std::move(op_case)});
  }
  return chains;
}

}  // namespace weft::testing
