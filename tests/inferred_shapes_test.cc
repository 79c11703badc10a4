// What shape inference says of the outputs of every node of the conformance cases is what the run
// makes of them: with the declared sizes, with sizes that are only names, and as a program is
// compiled.
#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "executor/program/forward_runner.h"
#include "graph/expansion.h"
#include "graph/inference.h"
#include "graph/node_description.h"
#include "gtest/gtest.h"
#include "onnx_import/importer.h"
#include "ops/node_runner.h"
#include "platform/file_system.h"
#include "tests/corpora.h"
#include "tools/models/conformance_suite.h"
#include "training/graph/gradient_nodes.h"

namespace weft::testing {
namespace {

using Values = std::map<std::string, Value>;

// Outputs of nodes in all cases, and how many have no size before the run, by operator.
struct Tally {
  int cases = 0;
  int outputs = 0;
  int known = 0;
  std::map<std::string, int> open;

  int open_total() const {
    int total = 0;
    for (const auto& [op, count] : open) total += count;
    return total;
  }
  std::string ToString() const {
    std::string text = absl::StrCat(cases, " cases, ", outputs, " outputs, ", known, " known");
    for (const auto& [op, count] : open) absl::StrAppend(&text, "\n  open: ", op, " ", count);
    return text;
  }
};

// "size 3" is the name of the size 3: names that are equal stand for sizes that are.
constexpr char kNamePrefix[] = "size_";

SymbolicShape Named(const Shape& shape) {
  std::vector<Dim> dims;
  for (const int64_t size : shape.dims()) {
    // Whether a size is 1 decides what broadcasts, and 0 what is empty.
    dims.push_back(size < 2 ? Dim(size) : Dim::Symbol(absl::StrCat(kNamePrefix, size)));
  }
  return SymbolicShape(std::move(dims));
}

// Why `inferred` is not true of `actual`; "" when it is.
std::string Contradiction(const ValueType& inferred, const Value& actual) {
  if (inferred.kind != actual.kind()) return "another kind of value";
  if (actual.kind() != ValueKind::kTensor) return "";
  const Tensor& tensor = actual.tensor();
  if (inferred.dtype != DType::kInvalid && inferred.dtype != tensor.dtype()) return "another dtype";
  if (!inferred.shape.has_rank()) return "";
  if (inferred.shape.rank() != tensor.shape().rank()) return "another rank";
  for (int axis = 0; axis < tensor.shape().rank(); ++axis) {
    const Dim& dim = inferred.shape.dim(axis);
    const int64_t size = tensor.shape().dim(axis);
    if (dim.is_known() && dim.size() != size) return absl::StrCat("another size of axis ", axis);
    const bool is_named = dim.is_symbol() && dim.symbol().rfind(kNamePrefix, 0) == 0;
    if (is_named && dim.symbol() != absl::StrCat(kNamePrefix, size)) {
      return absl::StrCat("another size of axis ", axis);
    }
  }
  return "";
}

bool IsComplete(const ValueType& type) {
  return type.kind != ValueKind::kTensor || type.shape.ToConcrete().has_value();
}

// One case: its graph with every value that a node makes as an output.
class ShapeCase {
 public:
  ShapeCase(std::string name, const Graph& graph) : name_(std::move(name)), graph_(graph.Clone()) {
    std::vector<ValueId> outputs;
    for (const NodeId id : graph_.node_ids()) {
      for (const ValueId output : graph_.node(id).outputs) {
        if (!output.valid()) continue;
        outputs.push_back(output);
        makers_[graph_.value(output).name] = FullOpName(graph_.node(id));
      }
    }
    graph_.SetOutputs(std::move(outputs));
  }

  absl::StatusOr<Values> Run(const Values& inputs) const {
    return ForwardRunner(graph_.Clone(), {}).Run(inputs);
  }

  // The types that the import inferred.
  void CheckImported(const Values& actual, Tally& tally) const {
    ++tally.cases;
    Check(graph_, actual, "as imported");
    tally.outputs += static_cast<int>(makers_.size());
  }

  // The types that follow when the inputs' sizes have names alone.
  void CheckNamed(const Values& inputs, const Values& actual) const {
    Graph named = graph_.Clone();
    for (const ValueId id : named.inputs()) {
      ValueDef& input = named.value(id);
      const Value& value = inputs.at(input.name);
      if (value.kind() == ValueKind::kTensor) input.type.shape = Named(value.tensor().shape());
    }
    const absl::Status inferred = InferShapes(named);
    EXPECT_TRUE(inferred.ok()) << name_ << " with named sizes: " << inferred;
    if (inferred.ok()) Check(named, actual, "with named sizes");
  }

  // The types of the program that the executor compiles.
  void CheckCompiled(const Values& inputs, const Values& actual, Tally& tally) const {
    Graph expanded = graph_.Clone();
    std::vector<absl::Status> refusals;
    ASSERT_TRUE(ExpandFunctions(expanded, RunsNode, &refusals).ok()) << name_;
    Specialization specialization;
    specialization.allow_unknown_shapes = true;
    const std::vector<std::string> by_value = ValueInputsOf(expanded);
    for (const auto& [name, value] : inputs) {
      if (value.kind() != ValueKind::kTensor) continue;
      specialization.input_shapes[name] = value.tensor().shape();
      if (std::find(by_value.begin(), by_value.end(), name) != by_value.end()) {
        specialization.input_values[name] = value.tensor();
      }
    }
    const auto compiled = Specialize(expanded, specialization, CpuNodeEvaluator());
    ASSERT_TRUE(compiled.ok()) << name_ << ": " << compiled.status();
    Check(*compiled, actual, "as compiled");
    for (const auto& [name, op] : makers_) {
      const std::optional<ValueId> value = compiled->FindValue(name);
      if (!value || IsComplete(compiled->value(*value).type)) {
        ++tally.known;
      } else {
        ++tally.open[op];
      }
    }
  }

 private:
  void Check(const Graph& graph, const Values& actual, const std::string& how) const {
    for (const auto& [name, op] : makers_) {
      const std::optional<ValueId> value = graph.FindValue(name);
      if (!value) continue;
      const ValueType& type = graph.value(*value).type;
      const std::string wrong = Contradiction(type, actual.at(name));
      EXPECT_EQ(wrong, "") << name_ << ", " << op << ", " << name << " " << how << ": "
                           << type.ToString() << ", but the run made "
                           << actual.at(name).ToString();
    }
  }

  const std::string name_;
  Graph graph_;
  std::map<std::string, std::string> makers_;  // operator by value
};

// False where the case does not run: another test says which may not.
bool CheckCase(const ConformanceCase& one, Tally& tally) {
  ImportOptions options;
  options.parameters_as_variables = false;
  auto model = ImportModelFile(RealFileSystem(), one.model, options);
  const std::string data = absl::StrCat(one.folder, "/test_data_set_0");
  if (!model.ok() || !RealFileSystem().Exists(data)) return false;
  if (!ReplaceGradientNodes(model->graph).ok()) return false;
  const auto inputs = ReadCaseInputs(RealFileSystem(), model->graph, data);
  if (!inputs.ok()) return false;
  const ShapeCase shapes(one.name, model->graph);
  const auto actual = shapes.Run(*inputs);
  if (!actual.ok()) return false;
  shapes.CheckImported(*actual, tally);
  shapes.CheckNamed(*inputs, *actual);
  shapes.CheckCompiled(*inputs, *actual, tally);
  return true;
}

// At most `max_left_out` cases do not run, and at most `max_open` outputs of nodes have no complete
// shape before they do: of operators whose output depends on data (Unique, NonMaxSuppression, an
// image's size in its file, the rounds of a Loop), and of what follows these.
void ExpectRight(const std::vector<ConformanceCase>& cases, int max_left_out, int max_open) {
  Tally tally;
  int left_out = 0;
  for (const ConformanceCase& one : cases) left_out += CheckCase(one, tally) ? 0 : 1;
  EXPECT_LE(left_out, max_left_out);
  EXPECT_LE(tally.open_total(), max_open) << tally.ToString();
  ::testing::Test::RecordProperty("outputs", tally.outputs);
  ::testing::Test::RecordProperty("open", tally.open_total());
}

TEST(InferredShapes, AreThoseOfTheRunInTheSharedData) {
  if (!CorporaFolder()) GTEST_SKIP() << "WEFT_CORPORA is not set: no models to run";
  const auto cases =
      ReadConformanceTable(RealFileSystem(), *CorporaFolder() + "/onnx-conformance/cases.csv", {});
  ASSERT_TRUE(cases.ok()) << cases.status();
  ExpectRight(*cases, 2, 158);
}

TEST(InferredShapes, AreThoseOfTheRunInDebiansPackage) {
  const std::string folder = "/usr/share/libonnx-testdata/data";
  if (!RealFileSystem().Exists(folder)) GTEST_SKIP() << "libonnx-testdata is not installed";
  const auto cases = FindConformanceCases(folder);
  ASSERT_TRUE(cases.ok()) << cases.status();
  ExpectRight(*cases, 4, 55);
}

}  // namespace
}  // namespace weft::testing
