#include "ops/rewrites/embedding_bag_sequence.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "graph/graph_builder.h"
#include "graph/node_bodies.h"
#include "ops/rewrites/nested_values.h"
#include "ops/rewrites/rewriter.h"

namespace weft {
namespace {

// Whether the round is the last one; none: it may be any.
using IsLast = std::optional<bool>;

enum class RoundCondition { kTrue, kFalse, kIsLast, kUnknown };

// What the rounds of a Loop do: reduce the rows of `rows` from offsets[i] to offsets[i + 1].
struct BagRounds {
  Place rows, offsets;
  SizeProduct bags;
  std::string reduction;  // "ReduceSum", "ReduceMean" or "ReduceMax"
};

// Reads the body of one Loop, under the assumption that no bag is empty and that the last one ends
// with the last row: whoever uses what it finds makes sure of both.
class BagLoop {
 public:
  BagLoop(NestedValues& values, const Node& loop)
      : values_(values), loop_(loop), body_(values.BodyOf(values.root(), loop, "body")) {}

  std::optional<BagRounds> Read();

 private:
  // The value is the number of the round plus this; none if it is something else.
  std::optional<int64_t> RoundPlus(Place place);
  // The offset at the number of the round plus `plus`.
  bool IsOffset(Place place, int64_t plus);
  // The number of rows, and what of them the last bag does not leave out.
  bool IsRowCount(Place place);
  bool IsRestOfRows(Place place);
  RoundCondition Condition(Place place);
  // The branch of an If that such a round takes; not valid where both have to be looked at.
  Place Branch(const Place& place, const Node& node, bool condition);
  // The rows of the bag.
  bool IsBag(Place place, IsLast is_last);
  // The operator that makes the value of the bag's rows; empty if none does.
  std::string ReductionOf(Place place, IsLast is_last);

  NestedValues& values_;
  const Node& loop_;
  const Scope* const body_;
  Place rows_, offsets_;
  std::optional<SizeProduct> bags_;
};

std::optional<int64_t> BagLoop::RoundPlus(Place place) {
  int64_t plus = 0;
  while (values_.MayGoOn()) {
    place = values_.ScalarSource(place);
    if (!place.valid()) return std::nullopt;
    // The round, or the Loop's own count of rounds, which Read has looked at.
    const std::vector<ValueId>& inputs = body_->graph->inputs();
    const bool is_round =
        place.scope == body_ && (place.value == inputs[0] || place.value == inputs[2]);
    if (is_round) return plus;
    const Node* const add = NestedValues::MakerOf(place);
    if (add == nullptr || add->op != "Add") return std::nullopt;
    Place rest = NestedValues::Input(place, *add, 0);
    std::optional<int64_t> more = values_.Int(NestedValues::Input(place, *add, 1));
    if (!more.has_value()) {
      more = values_.Int(rest);
      rest = NestedValues::Input(place, *add, 1);
    }
    // Small numbers: sums of a file's numbers must not overflow.
    if (!more.has_value() || *more < 0 || *more > 2) return std::nullopt;
    plus += *more;
    place = rest;
  }
  return std::nullopt;
}

bool BagLoop::IsOffset(Place place, int64_t plus) {
  place = values_.ScalarSource(place);
  const Node* const slice = NestedValues::MakerOf(place);
  if (slice == nullptr || slice->op != "Slice" || slice->inputs.size() > 3) return false;
  if (RoundPlus(NestedValues::Input(place, *slice, 1)) != plus) return false;
  if (RoundPlus(NestedValues::Input(place, *slice, 2)) != plus + 1) return false;
  const Place offsets = values_.Source(NestedValues::Input(place, *slice, 0));
  if (!offsets_.valid()) offsets_ = offsets;
  return offsets.valid() && offsets == offsets_;
}

bool BagLoop::IsRowCount(Place place) {
  if (!rows_.valid()) return false;
  const auto count = values_.Scalar(place);
  return count.has_value() && count == values_.Rows(rows_);
}

bool BagLoop::IsRestOfRows(Place place) {
  place = values_.ScalarSource(place);
  const Node* const rest = NestedValues::MakerOf(place);
  return rest != nullptr && rest->op == "Sub" && IsRowCount(NestedValues::Input(place, *rest, 0)) &&
         IsOffset(NestedValues::Input(place, *rest, 1), 0);
}

RoundCondition BagLoop::Condition(Place place) {
  place = values_.ScalarSource(place);
  const Node* const node = NestedValues::MakerOf(place);
  if (node == nullptr || node->inputs.size() != 2) return RoundCondition::kUnknown;
  const Place a = NestedValues::Input(place, *node, 0);
  const Place b = NestedValues::Input(place, *node, 1);
  if (node->op == "Greater") {
    const bool is_true = IsRestOfRows(a) && values_.Int(b) == 0;
    return is_true ? RoundCondition::kTrue : RoundCondition::kUnknown;
  }
  if (node->op != "Equal") return RoundCondition::kUnknown;
  if (IsOffset(a, 0) && IsOffset(b, 1)) return RoundCondition::kFalse;
  const Place last = values_.ScalarSource(b);
  const Node* const minus = NestedValues::MakerOf(last);
  const bool is_last = RoundPlus(a) == 0 && minus != nullptr && minus->op == "Sub" &&
                       values_.Scalar(NestedValues::Input(last, *minus, 0)) == bags_ &&
                       values_.Int(NestedValues::Input(last, *minus, 1)) == 1;
  return is_last ? RoundCondition::kIsLast : RoundCondition::kUnknown;
}

Place BagLoop::Branch(const Place& place, const Node& node, bool condition) {
  const Scope* const branch =
      values_.BodyOf(*place.scope, node, condition ? "then_branch" : "else_branch");
  if (branch == nullptr || branch->graph->outputs().size() != 1) return {};
  return {branch, branch->graph->outputs()[0]};
}

bool BagLoop::IsBag(Place place, IsLast is_last) {
  if (!values_.MayGoOn()) return false;
  place = values_.Source(place);
  const Node* const node = NestedValues::MakerOf(place);
  if (node == nullptr) return false;
  if (node->op == "If") {
    return Condition(NestedValues::Input(place, *node, 0)) == RoundCondition::kIsLast &&
           IsBag(Branch(place, *node, true), true) && IsBag(Branch(place, *node, false), false);
  }
  if (node->op != "Slice") return false;
  const Place rows = values_.Source(NestedValues::Input(place, *node, 0));
  if (!rows_.valid()) rows_ = rows;
  if (!rows.valid() || !(rows == rows_)) return false;
  const Place axes = NestedValues::Input(place, *node, 3);
  const Place steps = NestedValues::Input(place, *node, 4);
  if (axes.valid() && !values_.AreInts(axes, {0})) return false;
  if (steps.valid() && !values_.AreInts(steps, {1})) return false;
  const Place end = NestedValues::Input(place, *node, 2);
  return IsOffset(NestedValues::Input(place, *node, 1), 0) &&
         (IsOffset(end, 1) || (is_last == true && IsRowCount(end)));
}

std::string BagLoop::ReductionOf(Place place, IsLast is_last) {
  if (!values_.MayGoOn()) return "";
  place = values_.Source(place);
  const Node* const node = NestedValues::MakerOf(place);
  if (node == nullptr) return "";
  const Place first = NestedValues::Input(place, *node, 0);
  if (node->op == "If") {
    switch (Condition(first)) {
      case RoundCondition::kTrue:
        return ReductionOf(Branch(place, *node, true), is_last);
      case RoundCondition::kFalse:
        return ReductionOf(Branch(place, *node, false), is_last);
      case RoundCondition::kIsLast: {
        const std::string before = ReductionOf(Branch(place, *node, false), false);
        return before == ReductionOf(Branch(place, *node, true), true) ? before : "";
      }
      case RoundCondition::kUnknown:
        return "";
    }
  }
  if (node->op == "Div") {
    const bool is_mean = is_last == true && ReductionOf(first, is_last) == "ReduceSum" &&
                         IsRestOfRows(NestedValues::Input(place, *node, 1));
    return is_mean ? "ReduceMean" : "";
  }
  const bool is_reduction =
      (node->op == "ReduceSum" || node->op == "ReduceMean" || node->op == "ReduceMax") &&
      node->attributes.Int("keepdims", 1) == 1 &&
      values_.AreInts(NestedValues::Input(place, *node, 1), {0}) && IsBag(first, is_last);
  return is_reduction ? node->op : "";
}

std::optional<BagRounds> BagLoop::Read() {
  const bool is_loop = loop_.inputs.size() >= 4 && !loop_.inputs[0].valid() &&
                       NumOwnInputs(loop_) == 4 && loop_.outputs.size() == 2 &&
                       loop_.outputs[1].valid() && body_ != nullptr &&
                       body_->graph->outputs().size() == 3;
  if (!is_loop) return std::nullopt;
  const Place loop = values_.Outermost(loop_.outputs[1]);
  const Place count = values_.Source(NestedValues::Input(loop, loop_, 2));
  const Node* const empty =
      NestedValues::MakerOf(values_.Source(NestedValues::Input(loop, loop_, 3)));
  if (values_.Int(count) != 0 || empty == nullptr || empty->op != "SequenceEmpty") {
    return std::nullopt;
  }
  const std::vector<ValueId>& outputs = body_->graph->outputs();
  // The count of rounds grows by one, and the Loop ends when it is the number of bags.
  if (RoundPlus({body_, outputs[1]}) != 1) return std::nullopt;
  const auto limit_of = [&](Place condition) -> std::optional<SizeProduct> {
    condition = values_.Source(condition);
    const Node* const less = NestedValues::MakerOf(condition);
    if (less == nullptr || less->op != "Less") return std::nullopt;
    const Place at = NestedValues::Input(condition, *less, 0);
    const bool is_count = condition.scope == body_ ? RoundPlus(at) == 1 : values_.Int(at) == 0;
    return is_count ? values_.Scalar(NestedValues::Input(condition, *less, 1)) : std::nullopt;
  };
  bags_ = limit_of({body_, outputs[0]});
  const Place begins = NestedValues::Input(loop, loop_, 1);
  const bool has_rounds = values_.FixedCondition(begins) == true || limit_of(begins) == bags_;
  if (!bags_.has_value() || !has_rounds) return std::nullopt;
  const Place inserted = values_.Source({body_, outputs[2]});
  const Node* const insert = NestedValues::MakerOf(inserted);
  const bool is_appended = insert != nullptr && insert->op == "SequenceInsert" &&
                           insert->inputs.size() == 2 && inserted.scope == body_ &&
                           insert->inputs[0] == body_->graph->inputs()[3];
  if (!is_appended) return std::nullopt;
  const std::string reduction =
      ReductionOf(NestedValues::Input(inserted, *insert, 1), std::nullopt);
  const bool is_whole =
      !reduction.empty() && rows_.valid() && offsets_.valid() && rows_.scope == &values_.root();
  return is_whole ? std::optional<BagRounds>({rows_, offsets_, *bags_, reduction}) : std::nullopt;
}

// The length of bags whose offsets are 0, L, 2 L, ... up to the number of rows; 0: it is not so.
int64_t LengthOf(NestedValues& values, const BagRounds& rounds) {
  const auto rows = values.Rows(rounds.rows);
  if (!rows.has_value()) return 0;
  if (const auto known = values.Ints(rounds.offsets)) {
    const auto bags = static_cast<int64_t>(known->size()) - 1;
    if (bags < 1 || rounds.bags != SizeProduct{bags, {}} || !rows->symbols.empty()) return 0;
    const int64_t length = rows->factor / bags;
    if (length < 1 || rows->factor % bags != 0) return 0;
    for (int64_t bag = 0; bag <= bags; ++bag) {
      if ((*known)[static_cast<size_t>(bag)] != bag * length) return 0;
    }
    return length;
  }
  const Node* const concat = NestedValues::MakerOf(rounds.offsets);
  if (concat == nullptr || concat->op != "Concat" || concat->inputs.size() != 2) return 0;
  const Place starts = values.Source(NestedValues::Input(rounds.offsets, *concat, 0));
  const Node* const range = NestedValues::MakerOf(starts);
  if (range == nullptr || range->op != "Range") return 0;
  const int64_t length = values.Int(NestedValues::Input(starts, *range, 2)).value_or(0);
  const bool is_even = values.Int(NestedValues::Input(starts, *range, 0)) == 0 &&
                       values.Scalar(NestedValues::Input(starts, *range, 1)) == rows &&
                       values.Scalar(NestedValues::Input(rounds.offsets, *concat, 1)) == rows &&
                       Divided(*rows, length) == rounds.bags;
  return is_even ? length : 0;
}

// The elements of a vector as [bags, length]: what was laid out flat, where it had this form.
ValueId AsTable(GraphBuilder& builder, NestedValues& values, Place vector, int64_t length) {
  Place from = vector;
  while (values.MayGoOn()) {
    from = values.Source(from);
    if (!from.valid() || from.scope != &values.root()) break;
    const SymbolicShape& shape = from.def().type.shape;
    if (shape.has_rank() && shape.rank() == 2 && shape.dim(1) == Dim(length)) return from.value;
    const Node* const node = NestedValues::MakerOf(from);
    if (node == nullptr || node->op != "Reshape") break;
    from = NestedValues::Input(from, *node, 0);
  }
  return builder.Op("Reshape", {vector.value, builder.Ints({-1, length})});
}

// Bags of rows: [bags, length, size]. kNoValue where the rows are made in another way.
ValueId RowsOfBags(GraphBuilder& builder, NestedValues& values, const Place& rows, int64_t length) {
  const Node* gather = NestedValues::MakerOf(rows);
  Place weights;
  if (gather != nullptr && gather->op == "Mul") {
    const Node* const product = gather;
    for (size_t side : {0, 1}) {
      const Place factor = values.Source(NestedValues::Input(rows, *product, side));
      const Node* const maker = NestedValues::MakerOf(factor);
      if (maker == nullptr || maker->op != "Gather") continue;
      gather = maker;
      weights = values.Source(NestedValues::Input(rows, *product, 1 - side));
      break;
    }
  }
  const bool is_gather = gather != nullptr && gather->op == "Gather" &&
                         gather->attributes.Int("axis", 0) == 0 && gather->inputs.size() == 2;
  if (!is_gather) return kNoValue;
  const Place indices = values.Outermost(gather->inputs[1]);
  const SymbolicShape& shape = indices.def().type.shape;
  if (!shape.has_rank() || shape.rank() != 1) return kNoValue;
  const ValueId table = AsTable(builder, values, indices, length);
  const ValueId found = builder.Op("Gather", {gather->inputs[0], table}, {{"axis", int64_t{0}}});
  if (!weights.valid() || values.IsOnes(weights)) return found;
  // A weight for each index: [indices, 1].
  const Node* const column = NestedValues::MakerOf(weights);
  const bool is_column = column != nullptr && column->op == "Unsqueeze" &&
                         values.AreInts(NestedValues::Input(weights, *column, 1), {1});
  if (!is_column || weights.scope != &values.root()) return kNoValue;
  const Place each = NestedValues::Input(weights, *column, 0);
  const ValueId factors = AsTable(builder, values, each, length);
  return builder.Op("Mul", {found, builder.Op("Unsqueeze", {factors, builder.Ints({2})})});
}

// The Loop that made a sequence of bags, of which ConcatFromSequence is the only reader.
bool RewriteSequence(Graph& graph, NodeId id) {
  const Node& concat = graph.node(id);
  const bool is_join = concat.domain.empty() && concat.op == "ConcatFromSequence" &&
                       concat.inputs.size() == 1 && concat.attributes.Int("axis", 0) == 0 &&
                       concat.attributes.Int("new_axis", 0) == 0;
  if (!is_join) return false;
  NestedValues values(graph);
  const Node* const loop = NestedValues::MakerOf(values.Outermost(concat.inputs[0]), 1);
  if (loop == nullptr || loop->op != "Loop") return false;
  const auto rounds = BagLoop(values, *loop).Read();
  if (!rounds.has_value()) return false;
  const int64_t length = LengthOf(values, *rounds);
  if (length < 1) return false;
  // ConcatFromSequence becomes the reduction: it keeps its name and its output.
  Match match;
  match.nodes = {id, loop->id};
  Rewriter rewriter(graph);
  if (!rewriter.IsPrivate(match)) return false;
  return rewriter.Try([&] {
    GraphBuilder builder = rewriter.BuilderFor(match);
    const ValueId rows = RowsOfBags(builder, values, rounds->rows, length);
    const ValueId axes = builder.Ints({1});
    if (!rows.valid() || !builder.status().ok()) return false;
    return rewriter.Replace(match, {rounds->reduction, {rows, axes}, {{"keepdims", int64_t{0}}}});
  });
}

}  // namespace

int RewriteEmbeddingBagSequences(Graph& graph) {
  int count = 0;
  for (const NodeId id : graph.node_ids()) {
    if (graph.is_live(id) && RewriteSequence(graph, id)) ++count;
  }
  return count;
}

}  // namespace weft
