// Shared by the declarations of elementwise functions.
#ifndef WEFT_OPS_DEFS_ELEMENTWISE_ELEMENTWISE_H_
#define WEFT_OPS_DEFS_ELEMENTWISE_ELEMENTWISE_H_

#include <string>

#include "graph/graph_builder.h"
#include "graph/op_schema.h"

namespace weft {

// An ONNX op of one operand X of any computing float type, with an output Y of its type and shape;
// sharded elementwise, in place.
OpSchema FloatFunction(std::string name, double flops);

// Writes gradients as formulas: every method adds one node.
class Algebra {
 public:
  // Numbers take the dtype of `like`.
  Algebra(GraphBuilder& builder, ValueId like) : builder_(builder), like_(like) {}

  ValueId Number(double value) const {
    return like_.valid() ? builder_.Scalar(builder_.type(like_).dtype, value) : kNoValue;
  }
  ValueId Add(ValueId a, ValueId b) const { return builder_.Op("Add", {a, b}); }
  ValueId Add(double a, ValueId b) const { return Add(Number(a), b); }
  ValueId Sub(ValueId a, ValueId b) const { return builder_.Op("Sub", {a, b}); }
  ValueId Sub(double a, ValueId b) const { return Sub(Number(a), b); }
  ValueId Mul(ValueId a, ValueId b) const { return builder_.Op("Mul", {a, b}); }
  ValueId Mul(double a, ValueId b) const { return Mul(Number(a), b); }
  ValueId Div(ValueId a, ValueId b) const { return builder_.Op("Div", {a, b}); }
  ValueId Less(ValueId a, double b) const { return builder_.Op("Less", {a, Number(b)}); }
  ValueId Greater(ValueId a, double b) const { return builder_.Op("Greater", {a, Number(b)}); }
  ValueId LessOrEqual(ValueId a, double b) const {
    return builder_.Op("LessOrEqual", {a, Number(b)});
  }
  ValueId GreaterOrEqual(ValueId a, double b) const {
    return builder_.Op("GreaterOrEqual", {a, Number(b)});
  }
  ValueId Where(ValueId condition, ValueId a, ValueId b) const {
    return builder_.Op("Where", {condition, a, b});
  }
  // A function of one operand, by name.
  ValueId Of(const std::string& op, ValueId x) const { return builder_.Op(op, {x}); }
  ValueId Square(ValueId x) const { return Mul(x, x); }
  ValueId Pow(ValueId x, double exponent) const {
    return builder_.Op("Pow", {x, Number(exponent)});
  }

 private:
  GraphBuilder& builder_;
  ValueId like_;
};

}  // namespace weft

#endif  // WEFT_OPS_DEFS_ELEMENTWISE_ELEMENTWISE_H_
