#include "graph/node_description.h"

#include <cstddef>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph/op_schema.h"
#include "graph/schema_lookup.h"
#include "tensor/dtype.h"

namespace weft {

namespace {

// Longer names are cut in messages.
constexpr size_t kLongestName = 200;

std::string Cut(const std::string& name) {
  return name.size() <= kLongestName ? name : absl::StrCat(name.substr(0, kLongestName), "...");
}

}  // namespace

std::string FullOpName(const Node& node) { return FullOpName(node.domain, node.op); }

std::string TypedOpName(const NodeView& node) {
  const auto name_of = [](DType dtype) {
    return dtype == DType::kInvalid ? "_" : std::string(DTypeName(dtype));
  };
  std::vector<std::string> inputs, outputs;
  for (size_t i = 0; i < node.node().inputs.size(); ++i) {
    inputs.push_back(name_of(node.InputDType(static_cast<int>(i))));
  }
  for (size_t i = 0; i < node.node().outputs.size(); ++i) {
    outputs.push_back(name_of(node.OutputDType(static_cast<int>(i))));
  }
  return absl::StrCat(FullOpName(node.node()), "(", absl::StrJoin(inputs, ", "), ") -> ",
                      absl::StrJoin(outputs, ", "));
}

bool NamesTypesOf(std::string_view host_op, const NodeView& node) {
  // As a rule entries name an operator alone: the types are looked at where they may matter.
  const std::string name = FullOpName(node.node());
  return host_op.size() > name.size() && host_op[name.size()] == '(' && host_op.starts_with(name) &&
         host_op == TypedOpName(node);
}

std::string DescribeNode(const Node& node) {
  return absl::StrCat("node '", Cut(node.name), "' (", Cut(FullOpName(node)), ")");
}

std::string DescribeInputs(const Graph& graph, const Node& node) {
  const auto append = [&graph](std::string* out, ValueId id) {
    absl::StrAppend(out, id.valid() ? graph.value(id).type.ToString() : "_");
  };
  return absl::StrCat("(", absl::StrJoin(node.inputs, ", ", append), ")");
}

std::string DidYouMean(const Node& node) {
  const std::string nearest = OpRegistry::Global().Nearest(node.domain, node.op);
  return nearest.empty() ? "" : absl::StrCat(", did you mean ", nearest, "?");
}

}  // namespace weft
