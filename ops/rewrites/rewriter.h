// Rewriter: turns what a pattern matches into one operator that says the same.
#ifndef WEFT_OPS_REWRITES_REWRITER_H_
#define WEFT_OPS_REWRITES_REWRITER_H_

#include <functional>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/graph_builder.h"
#include "ops/rewrites/pattern.h"

namespace weft {

// What the root of a match becomes: an operator of ONNX with one output.
struct Replacement {
  std::string op;
  std::vector<ValueId> inputs;
  Attributes attributes;
};

// Edits one graph. One thread.
class Rewriter {
 public:
  explicit Rewriter(Graph& graph);

  const Graph& graph() const { return graph_; }
  const ValueType& type(ValueId value) const { return graph_.value(value).type; }
  // Rank of a value, -1 where it is not known.
  int rank(ValueId value) const;

  // Whether nothing outside of the match reads what its nodes compute, but for the root's output.
  bool IsPrivate(const Match& match) const;
  // The root becomes the replacement: it keeps its name, origin, phase and output; the match's
  // other nodes go. False, and nothing changes, where the replacement's operands do not fit, or its
  // output would have another type or shape. REQUIRES: IsPrivate.
  bool Replace(const Match& match, const Replacement& replacement);

  // Adds nodes for operands of a replacement, named after the root and with its phase and origin.
  // They must not read what goes. Only within Try.
  GraphBuilder BuilderFor(const Match& match);

  // Runs an edit that may add nodes and constants before it calls Replace. Where it gives up
  // (false), all that it has added goes: the graph is as before, and ids of it are not live.
  bool Try(const std::function<bool()>& edit);

 private:
  Graph& graph_;
  // As the graph was in the beginning: what a rewrite adds is read by nothing that a match takes.
  std::vector<std::vector<Graph::Use>> uses_;
  std::vector<bool> is_kept_;  // by ValueId: outputs of the graph and updates of variables
};

// A pattern and what becomes of it.
struct Rewrite {
  std::string name;  // "gelu"
  Pattern pattern;
  // Changes the graph by Rewriter::Replace, within Rewriter::Try; false: this match is not what it
  // looked like.
  std::function<bool(Rewriter&, const Match&)> apply;
};

// The number of elements of the axes from `axis` on, 0 where it is not known.
int64_t ElementsFrom(const SymbolicShape& shape, int axis);

// The rewrites of one family, larger patterns before smaller ones that are part of them.
std::vector<Rewrite> NormalizationRewrites();
std::vector<Rewrite> ActivationRewrites();
// Of one graph: they share nodes that they add.
std::vector<Rewrite> RotaryRewrites();
std::vector<Rewrite> AttentionRewrites();  // for forward passes
// The same of float32 that is plain or causal, with heads of a multiple of 8 elements: what a
// training step computes by a library, in 16 bits.
std::vector<Rewrite> LibraryAttentionRewrites();

}  // namespace weft

#endif  // WEFT_OPS_REWRITES_REWRITER_H_
