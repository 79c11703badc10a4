#include "ops/rewrites/rewrites.h"

#include <algorithm>
#include <utility>

#include "graph/inference.h"
#include "graph/passes/pass.h"
#include "ops/node_runner.h"
#include "ops/rewrites/embedding_bag.h"
#include "ops/rewrites/embedding_bag_sequence.h"
#include "ops/rewrites/rewriter.h"
#include "ops/rewrites/sequences.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

constexpr char kCasts[] = "needless_cast";
constexpr char kSequences[] = "sequences";
constexpr char kEmbeddingBags[] = "embedding_bag";
// A piece of a piece of a piece: each round may make the shapes known that the next needs.
constexpr int kMaxSequenceRounds = 8;

std::vector<Rewrite> RewritesFor(RewriteUse use) {
  std::vector<std::vector<Rewrite>> families = {NormalizationRewrites(), ActivationRewrites(),
                                                RotaryRewrites()};
  if (use == RewriteUse::kForward) families.push_back(AttentionRewrites());
  if (use == RewriteUse::kTrainingWithAttention) families.push_back(LibraryAttentionRewrites());
  std::vector<Rewrite> all;
  for (std::vector<Rewrite>& family : families) {
    for (Rewrite& rewrite : family) all.push_back(std::move(rewrite));
  }
  return all;
}

// Casts to the type that a value already has, which exporters leave where the model asks for a type
// to be sure: their readers read the value itself. Returns how many there were.
int RemoveNeedlessCasts(Graph& graph) {
  std::vector<ValueId> replacement(static_cast<size_t>(graph.value_capacity()));
  const std::vector<ValueId>& outputs = graph.outputs();
  std::vector<NodeId> needless;
  for (const NodeId id : graph.node_ids()) {
    const Node& node = graph.node(id);
    const bool is_cast = node.domain.empty() && (node.op == "Cast" || node.op == "CastLike");
    if (!is_cast || node.inputs.empty() || !node.inputs[0].valid()) continue;
    const ValueId output = node.outputs[0];
    const DType before = graph.value(node.inputs[0]).type.dtype;
    const bool is_needless = before != DType::kInvalid && graph.value(output).type.dtype == before;
    const bool is_kept = std::find(outputs.begin(), outputs.end(), output) != outputs.end();
    if (!is_needless || is_kept) continue;
    replacement[static_cast<size_t>(output.value)] = node.inputs[0];
    needless.push_back(id);
  }
  if (needless.empty()) return 0;
  graph.ReplaceUses(replacement);
  for (const NodeId id : needless) graph.RemoveNode(id);
  return static_cast<int>(needless.size());
}

bool HasSequences(const Graph& graph) {
  const std::vector<ValueId> values = graph.value_ids();
  return std::any_of(values.begin(), values.end(), [&graph](ValueId id) {
    return graph.value(id).type.kind == ValueKind::kSequence;
  });
}

// How many nodes that read a sequence became plain, over all rounds. Before each, sizes and
// positions are computed as far as that can be done.
absl::StatusOr<int> ResolveAllSequences(Graph& graph) {
  int count = 0;
  int64_t work = 0;
  for (int round = 0; round < kMaxSequenceRounds && HasSequences(graph); ++round) {
    WEFT_RETURN_IF_ERROR(NewFoldConstantsPass(CpuNodeEvaluator())->Run(graph).status());
    WEFT_RETURN_IF_ERROR(InferShapes(graph));
    WEFT_ASSIGN_OR_RETURN(const int replaced, ResolveSequences(graph, work));
    if (replaced == 0) break;
    WEFT_RETURN_IF_ERROR(InferShapes(graph));
    count += replaced;
  }
  return count;
}

// In half precision the operators round after each step, and the one operator does not.
bool IsWide(const Graph& graph, NodeId id) {
  const std::vector<ValueId>& outputs = graph.node(id).outputs;
  if (outputs.empty() || !outputs[0].valid()) return false;
  const DType dtype = graph.value(outputs[0]).type.dtype;
  return dtype == DType::kFloat32 || dtype == DType::kFloat64;
}

// How many places changed.
int ApplyEverywhere(Graph& graph, const Rewrite& rewrite) {
  Rewriter rewriter(graph);
  int count = 0;
  for (const NodeId id : graph.node_ids()) {
    if (!graph.is_live(id) || !IsWide(graph, id)) continue;
    for (const Match& match : rewrite.pattern.MatchesAt(graph, id)) {
      if (!rewriter.IsPrivate(match)) continue;
      if (!rewriter.Try([&] { return rewrite.apply(rewriter, match); })) continue;
      ++count;
      break;
    }
  }
  return count;
}

}  // namespace

absl::StatusOr<RewriteCounts> RewritePatterns(Graph& graph, RewriteUse use) {
  WEFT_RETURN_IF_ERROR(InferShapes(graph));
  RewriteCounts counts;
  WEFT_ASSIGN_OR_RETURN(const int readers, ResolveAllSequences(graph));
  if (readers > 0) counts[kSequences] = readers;
  if (const int casts = RemoveNeedlessCasts(graph); casts > 0) {
    counts[kCasts] = casts;
    // What stood behind them may be computed now.
    WEFT_RETURN_IF_ERROR(NewFoldConstantsPass(CpuNodeEvaluator())->Run(graph).status());
    WEFT_RETURN_IF_ERROR(InferShapes(graph));
  }
  const int bags = RewriteEmbeddingBags(graph) + RewriteEmbeddingBagSequences(graph);
  if (bags > 0) counts[kEmbeddingBags] = bags;
  for (const Rewrite& rewrite : RewritesFor(use)) {
    const int count = ApplyEverywhere(graph, rewrite);
    if (count > 0) counts[rewrite.name] += count;
  }
  if (!counts.empty()) WEFT_RETURN_IF_ERROR(InferShapes(graph));
  return counts;
}

std::vector<std::string> RewriteNames(RewriteUse use) {
  std::vector<std::string> names = {kSequences, kCasts, kEmbeddingBags};
  for (const Rewrite& rewrite : RewritesFor(use)) {
    const bool is_new = std::find(names.begin(), names.end(), rewrite.name) == names.end();
    if (is_new) names.push_back(rewrite.name);
  }
  return names;
}

}  // namespace weft
