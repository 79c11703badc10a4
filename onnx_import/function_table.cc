#include "onnx_import/function_table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "onnx_import/codec/model_validator.h"
#include "onnx_import/codec/quote.h"
#include "onnx_import/model_file.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// Of a small file, more nodes than its functions can be meant to make.
constexpr int64_t kFreelyInlinedNodes = int64_t{1} << 15;
constexpr int64_t kMaxGrowth = 256;

}  // namespace

FunctionTable::FunctionTable(const onnx::ModelProto& model) {
  int64_t nodes = model.graph().node_size();
  for (const onnx::FunctionProto& function : model.functions()) {
    nodes += function.node_size();
    functions_[{NormalizedDomain(function.domain()), function.name(), function.overload()}] =
        &function;
  }
  max_nodes_ = std::min(ModelFile::MaxNodes(), std::max(kFreelyInlinedNodes, nodes * kMaxGrowth));
}

const onnx::FunctionProto* FunctionTable::Find(const onnx::NodeProto& node) const {
  if (functions_.empty()) return nullptr;
  const auto found =
      functions_.find({NormalizedDomain(node.domain()), node.op_type(), node.overload()});
  return found == functions_.end() ? nullptr : found->second;
}

absl::Status FunctionTable::CheckCalls(const onnx::GraphProto& graph) {
  if (functions_.empty()) return absl::OkStatus();
  return Measure(graph.node()).status();
}

absl::StatusOr<FunctionTable::Extent> FunctionTable::Measure(const NodeProtos& nodes) {
  Extent extent;
  const auto add = [&extent](const Extent& part) {
    extent.nodes += part.nodes;
    extent.depth = std::max(extent.depth, part.depth);
    extent.bodies = std::max(extent.bodies, part.bodies);
  };
  for (const onnx::NodeProto& node : nodes) {
    ++extent.nodes;
    for (const onnx::AttributeProto& attribute : node.attribute()) {
      if (!attribute.has_g()) continue;
      WEFT_ASSIGN_OR_RETURN(Extent body, Measure(attribute.g().node()));
      ++body.bodies;
      add(body);
    }
    if (const onnx::FunctionProto* function = Find(node)) {
      WEFT_ASSIGN_OR_RETURN(const Extent body, MeasureCall(*function));
      add(body);
    }
    if (extent.nodes > max_nodes_) {
      return absl::ResourceExhaustedError(
          absl::StrCat("the model has more than ", max_nodes_,
                       " nodes once its functions are inlined, ", "expected at most ", kMaxGrowth,
                       " for each that the file holds and ", ModelFile::MaxNodes(),
                       " in all (--max-nodes); export it without functions that call functions"));
    }
  }
  if (extent.bodies > kMaxNesting) {
    return absl::InvalidArgumentError(
        absl::StrCat("subgraphs are nested more than ", kMaxNesting,
                     " deep once the model's functions are inlined; simplify its control flow"));
  }
  return extent;
}

absl::StatusOr<FunctionTable::Extent> FunctionTable::MeasureCall(
    const onnx::FunctionProto& function) {
  const Extent known = extents_[&function];
  const auto recursive = std::find(calls_.begin(), calls_.end(), &function);
  if (recursive != calls_.end()) {
    const auto name = [](std::string* out, const onnx::FunctionProto* call) {
      absl::StrAppend(out, Quoted(call->name()));
    };
    return absl::InvalidArgumentError(absl::StrCat(
        "function ", Quoted(function.name()), " calls itself (",
        absl::StrJoin(recursive, calls_.end(), " calls ", name), "), which ONNX does not allow"));
  }
  const int depth_inside = known.known ? known.depth : 1;
  if (static_cast<int>(calls_.size()) + depth_inside > kMaxNesting) {
    return absl::InvalidArgumentError(absl::StrCat("function ", Quoted(function.name()),
                                                   " is in a chain of more than ", kMaxNesting,
                                                   " calls; export the model with them inlined"));
  }
  if (known.known) return known;
  calls_.push_back(&function);
  absl::StatusOr<Extent> extent = Measure(function.node());
  calls_.pop_back();
  if (!extent.ok()) return extent;
  extent->depth += 1;
  extent->known = true;
  extents_[&function] = *extent;
  return extent;
}

}  // namespace weft
