#include "ops/rewrites/rewrites.h"

#include <algorithm>
#include <utility>

#include "graph/inference.h"
#include "graph/pass.h"
#include "ops/node_runner.h"
#include "ops/rewrites/embedding_bag.h"
#include "ops/rewrites/rewriter.h"
#include "ops/rewrites/sequences.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

constexpr char kSequences[] = "sequences";
constexpr char kEmbeddingBags[] = "embedding_bag";
// A piece of a piece of a piece: each round may make the shapes known that the next needs.
constexpr int kMaxSequenceRounds = 8;

std::vector<Rewrite> RewritesFor(RewriteUse use) {
  std::vector<std::vector<Rewrite>> families = {NormalizationRewrites(), ActivationRewrites(),
                                                RotaryRewrites()};
  if (use == RewriteUse::kForward) families.push_back(AttentionRewrites());
  std::vector<Rewrite> all;
  for (std::vector<Rewrite>& family : families) {
    for (Rewrite& rewrite : family) all.push_back(std::move(rewrite));
  }
  return all;
}

bool HasSequences(const Graph& graph) {
  const std::vector<ValueId> values = graph.value_ids();
  return std::any_of(values.begin(), values.end(), [&graph](ValueId id) {
    return graph.value(id).type.kind == ValueKind::kSequence;
  });
}

// How many rounds changed something. Before each, sizes and positions are computed as far as that
// can be done.
absl::StatusOr<int> ResolveAllSequences(Graph& graph) {
  int rounds = 0;
  while (rounds < kMaxSequenceRounds && HasSequences(graph)) {
    WEFT_RETURN_IF_ERROR(NewFoldConstantsPass(CpuNodeEvaluator())->Run(graph).status());
    WEFT_RETURN_IF_ERROR(InferShapes(graph));
    WEFT_ASSIGN_OR_RETURN(const bool changed, ResolveSequences(graph));
    if (!changed) break;
    WEFT_RETURN_IF_ERROR(InferShapes(graph));
    ++rounds;
  }
  return rounds;
}

// How many places changed.
int ApplyEverywhere(Graph& graph, const Rewrite& rewrite) {
  Rewriter rewriter(graph);
  int count = 0;
  for (const NodeId id : graph.node_ids()) {
    if (!graph.is_live(id)) continue;
    for (const Match& match : rewrite.pattern.MatchesAt(graph, id)) {
      if (!rewriter.IsPrivate(match) || !rewrite.apply(rewriter, match)) continue;
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
  WEFT_ASSIGN_OR_RETURN(const int rounds, ResolveAllSequences(graph));
  if (rounds > 0) counts[kSequences] = rounds;
  const int bags = RewriteEmbeddingBags(graph);
  if (bags > 0) counts[kEmbeddingBags] = bags;
  for (const Rewrite& rewrite : RewritesFor(use)) {
    const int count = ApplyEverywhere(graph, rewrite);
    if (count > 0) counts[rewrite.name] += count;
  }
  if (!counts.empty()) WEFT_RETURN_IF_ERROR(InferShapes(graph));
  return counts;
}

std::vector<std::string> RewriteNames(RewriteUse use) {
  std::vector<std::string> names = {kSequences, kEmbeddingBags};
  for (const Rewrite& rewrite : RewritesFor(use)) {
    const bool is_new = std::find(names.begin(), names.end(), rewrite.name) == names.end();
    if (is_new) names.push_back(rewrite.name);
  }
  return names;
}

}  // namespace weft
