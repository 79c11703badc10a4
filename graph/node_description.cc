#include "graph/node_description.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph/op_schema.h"
#include "graph/schema_lookup.h"

namespace weft {

namespace {

// Longer names are cut in messages.
constexpr size_t kLongestName = 200;

std::string Cut(const std::string& name) {
  return name.size() <= kLongestName ? name : absl::StrCat(name.substr(0, kLongestName), "...");
}

}  // namespace

std::string FullOpName(const Node& node) { return FullOpName(node.domain, node.op); }

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
