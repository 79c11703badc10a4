// ShardingNotation: the sharding rule of a custom op, as written in OpBuilder::Sharding.
#ifndef WEFT_OPS_CUSTOM_SHARDING_NOTATION_H_
#define WEFT_OPS_CUSTOM_SHARDING_NOTATION_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/op_schema.h"

namespace weft {

// Parsed once; immutable. See ops/custom_op.h for the language:
//   notation = operands "->" operands { ";" "linear" { number } }
//   operands = operand { "," operand }        operand = [ "..." ] { dim }
//   dim      = term | "(" term { term } ")"   term    = name [ "!" ] | number
class ShardingNotation {
 public:
  // InvalidArgument saying what is wrong and where.
  static absl::StatusOr<ShardingNotation> Parse(const std::string& text);

  // The rule for a node's shapes. Where a node has more operands than the notation, its last
  // operand stands for the rest (variadic ones). InvalidArgument when shapes do not fit the
  // notation.
  absl::StatusOr<FactorRule> Bind(const NodeView& view) const;

  // Shapes of `count` inputs that fit, by the sizes that `size` gives for a name or, as "...0",
  // "...1", for a leading dimension, of which there are `leading`.
  std::vector<Shape> InputShapes(int count, int leading,
                                 const std::function<int64_t(const std::string&)>& size) const;

 private:
  struct Term {
    std::string name;  // empty: a number
    int64_t size = 1;  // of a number
    bool is_whole = false;
  };
  struct Operand {
    bool has_leading = false;
    std::vector<std::vector<Term>> dims;
  };
  class Parser;
  class Binder;

  static const Operand* At(const std::vector<Operand>& operands, int i);

  std::vector<Operand> inputs_;
  std::vector<Operand> outputs_;
  std::vector<std::vector<int>> linear_;
};

}  // namespace weft

#endif  // WEFT_OPS_CUSTOM_SHARDING_NOTATION_H_
