#include "tools/reports/model_check.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph/inference.h"
#include "graph/node_description.h"
#include "graph/op_schema.h"
#include "onnx_import/training_info.h"
#include "platform/status_macros.h"
#include "tools/reports/model_report.h"
#include "training/graph/training_graph.h"

namespace weft {
namespace {

constexpr size_t kNamedNodes = 3;

constexpr char kUnrunnableRepair[] =
    "write the operator as a custom op (docs/custom-ops.md) and give it with --op_library, or "
    "export the model with other operators";

// One finding per operator and reason.
std::vector<CheckFinding> GroupProblems(const std::vector<NodeProblem>& problems,
                                        const std::string& repair) {
  std::map<std::pair<std::string, std::string>, CheckFinding> by_op;
  for (const NodeProblem& problem : problems) {
    CheckFinding& finding = by_op[{problem.op, problem.reason}];
    finding.count = finding.nodes.empty() ? 1 : finding.count + 1;
    finding.severity = Severity::kError;
    finding.what = absl::StrCat(problem.op, ": ", problem.reason);
    finding.repair = repair;
    if (finding.nodes.size() < kNamedNodes) {
      finding.nodes.push_back(absl::StrCat(problem.node, " (", problem.op, ")"));
    }
  }
  std::vector<CheckFinding> findings;
  for (auto& [key, finding] : by_op) findings.push_back(std::move(finding));
  return findings;
}

void ErrorsFirst(std::vector<CheckFinding>& findings) {
  std::stable_sort(
      findings.begin(), findings.end(),
      [](const CheckFinding& a, const CheckFinding& b) { return a.severity < b.severity; });
}

std::string Label(const Node& node) { return absl::StrCat(node.name, " (", FullOpName(node), ")"); }

class Check {
 public:
  Check(ImportedModel& model, bool trainable, const TrainableOptions& parameters)
      : model_(model), graph_(model.graph), trainable_(trainable), parameters_(parameters) {}

  absl::StatusOr<std::vector<CheckFinding>> Run(std::vector<ParameterDecision>* decisions) {
    WEFT_ASSIGN_OR_RETURN(const ModelReport report, DescribeModel(model_, {parameters_, {}}));
    if (decisions != nullptr) *decisions = report.parameters;
    Problems(report.cannot_run, kUnrunnableRepair);
    LaterOpset();
    UnknownShapes();
    OwnTraining();
    if (trainable_) {
      NoParameters(report);
      Problems(report.cannot_train,
               "freeze the parameters in front of it (--freeze), or give the operator a gradient "
               "in a library of custom ops");
      CutOffParameters(report);
      FoldedNormalization();
      InferenceLayers();
      Integers();
    }
    ErrorsFirst(findings_);
    return std::move(findings_);
  }

 private:
  void Add(Severity severity, const std::vector<const Node*>& nodes, std::string what,
           std::string repair) {
    CheckFinding finding{
        severity, {}, static_cast<int>(nodes.size()), std::move(what), std::move(repair)};
    for (const Node* node : nodes) {
      if (finding.nodes.size() < kNamedNodes) finding.nodes.push_back(Label(*node));
    }
    findings_.push_back(std::move(finding));
  }

  void Problems(const std::vector<NodeProblem>& problems, const std::string& repair) {
    for (CheckFinding& finding : GroupProblems(problems, repair)) {
      findings_.push_back(std::move(finding));
    }
  }

  template <typename Predicate>
  std::vector<const Node*> NodesWhere(Predicate predicate) const {
    std::vector<const Node*> nodes;
    for (const NodeId id : graph_.node_ids()) {
      if (predicate(graph_.node(id))) nodes.push_back(&graph_.node(id));
    }
    return nodes;
  }

  bool IsOp(const Node& node, std::string_view op) const {
    return node.domain.empty() && node.op == op;
  }

  // Each operator is taken as it is known; what changed in it without a trace is not seen.
  void LaterOpset() {
    const std::string text = UnknownOpsetText(model_);
    if (text.empty()) return;
    Add(Severity::kWarning, {}, text,
        absl::StrCat("see the notes of that operator set for changes of these operators, or export "
                     "the model for operator set ",
                     KnownOpsets().newest));
  }

  // The first nodes on each path whose outputs have an unknown rank or a dimension without a name.
  void UnknownShapes() {
    const auto unknown = [&](ValueId id) {
      if (!id.valid()) return false;
      const ValueType& type = graph_.value(id).type;
      if (type.kind != ValueKind::kTensor) return false;
      if (!type.shape.has_rank()) return true;
      const auto& dims = type.shape.dims();
      return std::any_of(dims.begin(), dims.end(),
                         [](const Dim& dim) { return !dim.is_known() && !dim.is_symbol(); });
    };
    const auto starts_here = [&](const Node& node) {
      return node.schema != nullptr &&
             std::any_of(node.outputs.begin(), node.outputs.end(), unknown) &&
             std::none_of(node.inputs.begin(), node.inputs.end(), unknown);
    };
    const std::vector<const Node*> nodes = NodesWhere(starts_here);
    if (nodes.empty()) return;
    Add(trainable_ ? Severity::kWarning : Severity::kNote, nodes,
        "the shape of its output is not known before the model runs",
        "fixed input shapes may settle it (a shape that depends on data stays open: such nodes run "
        "on the host, cannot be split, and what follows them does not train)");
  }

  // Nothing of it is needed to run the model, or to train it by another algorithm.
  void OwnTraining() {
    const TrainingInfo info = TrainingInfoOf(model_.file);
    if (!info.has_algorithm && !info.has_initialization) return;
    absl::Status status = CheckTrainingInfo(model_.file);
    if (status.ok() && info.has_algorithm) status = OwnStep();
    if (!status.ok()) {
      Add(trainable_ ? Severity::kWarning : Severity::kNote, {},
          absl::StrCat("its own training (training_info) cannot be used: ",
                       std::string(status.message())),
          "train with --optimizer sgd or another of ours, or mend the training_info");
      return;
    }
    Add(Severity::kNote, {}, "it brings its own training (training_info) along",
        absl::StrCat(
            info.has_algorithm ? "train --optimizer model runs its algorithm" : "",
            info.has_algorithm && info.has_initialization ? "; " : "",
            info.has_initialization ? "train --initialize makes its initial weights" : ""));
  }

  absl::Status OwnStep() const {
    WEFT_ASSIGN_OR_RETURN(const ImportedModel step, ImportTrainingStep(model_.file));
    TrainingSpec spec;
    spec.model_training_info = true;
    return BuildTrainingGraph(step.graph, spec).status();
  }

  void NoParameters(const ModelReport& report) {
    if (report.trainable_elements > 0) return;
    Add(Severity::kError, {}, "nothing trains: no float parameter reaches an output",
        "see `graph_runner inspect` for the reason of each; --trainable PATTERN adds what the "
        "rules "
        "leave out");
  }

  // Float tensors of several elements from which no gradient's path leads to an output.
  void CutOffParameters(const ModelReport& report) {
    std::vector<std::string> names;
    int count = 0;
    for (const ParameterDecision& parameter : report.parameters) {
      const auto shape = parameter.type.shape.ToConcrete();
      const bool is_cut_off = !parameter.trainable && IsFloatingPoint(parameter.type.dtype) &&
                              shape.has_value() && shape->num_elements() > 1 &&
                              parameter.kind == DecisionKind::kUnused;
      if (is_cut_off && ++count <= static_cast<int>(kNamedNodes)) names.push_back(parameter.name);
    }
    if (count == 0) return;
    findings_.push_back({Severity::kWarning, std::move(names), count,
                         "no gradient reaches these parameters, so they stay as they are",
                         "train from a model that was exported before quantization or rounding"});
  }

  // Exporters for inference fold BatchNormalization into the convolution before it: what is left is
  // a convolution with a bias and no normalization anywhere.
  void FoldedNormalization() {
    const auto is_normalization = [&](const Node& node) {
      return node.op.find("Normalization") != std::string::npos;
    };
    if (!NodesWhere(is_normalization).empty()) return;
    const auto is_biased = [&](const Node& node) {
      return IsOp(node, "Conv") && node.inputs.size() > 2 && node.inputs[2].valid();
    };
    const std::vector<const Node*> convolutions = NodesWhere(is_biased);
    if (convolutions.size() < 8) return;  // a small network may have none by design
    Add(Severity::kWarning, convolutions,
        "every convolution has a bias and nothing normalizes: BatchNormalization was probably "
        "folded "
        "away for inference",
        "export in training mode (PyTorch: training=TrainingMode.TRAINING, "
        "do_constant_folding=False), or go on with a small learning rate");
  }

  void InferenceLayers() {
    const std::vector<const Node*> batch_norms = NodesWhere([&](const Node& node) {
      return IsOp(node, "BatchNormalization") && node.attributes.Int("training_mode", 0) == 0;
    });
    if (!batch_norms.empty()) {
      Add(Severity::kWarning, batch_norms,
          "exported for inference: it normalizes with its running statistics, which do not change",
          "train --train-mode '*' trains with the statistics of the batch; as it is, scale and "
          "bias "
          "train and the statistics are kept");
    }
    const std::vector<const Node*> dropouts = NodesWhere([&](const Node& node) {
      const bool has_mode = node.inputs.size() > 2 && node.inputs[2].valid();
      return IsOp(node, "Dropout") && !has_mode;
    });
    if (dropouts.empty()) return;
    Add(Severity::kNote, dropouts, "exported for inference: it drops nothing",
        "train --train-mode '*' drops");
  }

  void Integers() {
    const std::vector<const Node*> quantized = NodesWhere([](const Node& node) {
      return node.op.rfind("QLinear", 0) == 0 || node.op == "QuantizeLinear" ||
             node.op == "DynamicQuantizeLinear" ||
             (node.op.size() > 7 && node.op.compare(node.op.size() - 7, 7, "Integer") == 0);
    });
    if (quantized.empty()) return;
    Add(Severity::kWarning, quantized, "computes in integers: no gradient passes",
        "train the model from before its quantization, then quantize it again");
  }

  ImportedModel& model_;
  Graph& graph_;
  const bool trainable_;
  const TrainableOptions& parameters_;
  std::vector<CheckFinding> findings_;
};

}  // namespace

std::string_view SeverityName(Severity severity) {
  switch (severity) {
    case Severity::kError:
      return "error";
    case Severity::kWarning:
      return "warning";
    case Severity::kNote:
      return "note";
  }
  return "";
}

absl::StatusOr<std::vector<CheckFinding>> CheckModel(ImportedModel& model, bool trainable,
                                                     const TrainableOptions& parameters,
                                                     std::vector<ParameterDecision>* decisions) {
  return Check(model, trainable, parameters).Run(decisions);
}

absl::StatusOr<std::vector<CheckFinding>> FindObstacles(const Graph& model) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<NodeProblem> problems, NodesThatCannotRun(model));
  return GroupProblems(problems, kUnrunnableRepair);
}

std::string FindingText(const CheckFinding& finding) {
  const int more = finding.count - static_cast<int>(finding.nodes.size());
  std::string text = finding.what;
  if (!finding.nodes.empty()) absl::StrAppend(&text, " at ", absl::StrJoin(finding.nodes, ", "));
  if (more > 0) absl::StrAppend(&text, " and ", more, " more");
  return absl::StrCat(text, "; repair: ", finding.repair);
}

bool Explains(const CheckFinding& finding, const std::string& message) {
  if (absl::StrContains(message, finding.what)) return true;
  return std::any_of(finding.nodes.begin(), finding.nodes.end(), [&](const std::string& node) {
    const std::string name = node.substr(0, node.rfind(" ("));
    return !name.empty() && absl::StrContains(message, absl::StrCat("'", name, "'"));
  });
}

std::vector<CheckFinding> JoinRefusal(std::vector<CheckFinding> findings,
                                      const absl::Status& refusal) {
  bool is_explained = false;
  for (CheckFinding& finding : findings) {
    if (finding.severity != Severity::kError) continue;
    is_explained = is_explained || Explains(finding, std::string(refusal.message()));
    // It trains all the same: what stands in the way elsewhere is not needed for the loss.
    if (refusal.ok()) finding.severity = Severity::kWarning;
  }
  if (!refusal.ok() && !is_explained) {
    findings.push_back({Severity::kError,
                        {},
                        1,
                        absl::StrCat("train refuses it: ", std::string(refusal.message())),
                        "give check the flags of train: --loss, --data, --labels, --batch, "
                        "--freeze; the text above says what is missing"});
  }
  ErrorsFirst(findings);
  return findings;
}

}  // namespace weft
